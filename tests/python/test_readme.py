"""What the README shows is what the repository runs."""

import os
import pathlib
import re
import subprocess

import pytest

from conftest import BUILD, ROOT

README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("language,path", [("cpp", "client/cpp/examples/first_call.cc"),
                                           ("python", "client/python/examples/first_call.py")])
def test_first_calls_in_the_readme_are_the_example_files(language, path):
    assert blocks(language) == [(ROOT / path).read_text()]


def test_first_call_from_cpp(server):
    result = subprocess.run([str(BUILD / "client" / "cpp" / "tenon_first_call")],
                            env={**os.environ, "TENON_SERVER": server.address},
                            capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "9 9 9 9\n"), result.stderr


def test_first_call_from_python_as_the_readme_says(server, tmp_path):
    script = next(b for b in blocks("sh") if "first_call.py" in b)
    script = script.replace("stubs", str(tmp_path / "stubs"))
    result = subprocess.run(["bash", "-ec", script], cwd=ROOT, capture_output=True, text=True,
                            env={**os.environ, "TENON_SERVER": server.address}, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["[[9.", "9.]", "[9.", "9.]]"]


def test_commands_of_the_readme_exist():
    for command in re.findall(r"^((?:deploy|tests)/\S+\.sh)$", README, re.MULTILINE):
        assert os.access(ROOT / command, os.X_OK), command


def test_tenon_commands_of_the_readme_run(server, tmp_path):
    """The block of `tenon` lines, with small arrays where it names files."""
    import numpy as np
    rng = np.random.default_rng(0)
    for name, shape in [("a", (3, 4)), ("b", (4, 5))]:
        np.save(tmp_path / f"{name}.npy", rng.normal(size=shape))
    lines = next(b for b in blocks("sh") if "client/cpp/tenon contract" in b).splitlines()
    for line in lines:
        line = line.replace("build/client", f"{BUILD}/client").replace("tests/data",
                                                                        f"{ROOT}/tests/data")
        result = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True,
                                env={**os.environ, "TENON_SERVER": server.address}, timeout=120)
        assert result.returncode == 0, line + "\n" + result.stderr
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"),
                               np.load(tmp_path / "a.npy") @ np.load(tmp_path / "b.npy"),
                               rtol=1e-13)
