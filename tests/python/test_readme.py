"""What the README shows is what the repository runs."""

import os
import pathlib
import re
import subprocess

import pytest

from conftest import BINARY, BUILD, ROOT

README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("language,folder,suffix", [("cpp", "client/cpp/examples", "cc"),
                                                    ("python", "client/python/examples", "py")])
def test_programs_in_the_readme_are_the_example_files(language, folder, suffix):
    names = ["first_call", "plan", "measure"]
    assert blocks(language) == [(ROOT / folder / f"{n}.{suffix}").read_text() for n in names]
    assert sorted(p.stem for p in (ROOT / folder).iterdir()) == sorted(names)


def test_first_call_from_cpp(server):
    result = subprocess.run([str(BUILD / "client" / "cpp" / "tenon_first_call")],
                            env={**os.environ, "TENON_SERVER": server.address},
                            capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "9 9 9 9\n"), result.stderr


def test_plan_from_cpp(server):
    result = subprocess.run([str(BUILD / "client" / "cpp" / "tenon_plan")],
                            env={**os.environ, "TENON_SERVER": server.address},
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    slices, value = result.stdout.splitlines()
    assert int(slices.removesuffix(" slices")) > 1
    assert float(value) == pytest.approx(1, rel=1e-12)
    assert "multiply-adds" in result.stderr


def value_of_the_ring():
    """What client/python/examples/plan.py contracts, from one end of the ring to the other."""
    import numpy as np
    rng = np.random.default_rng(0)
    tensors = [rng.normal(size=(2, 2, 2)) for _ in range(32)]
    # One half and the other: each a vector over (first bond, last bond, the 16 chords).
    halves = []
    for half in (tensors[:16], tensors[16:]):
        state = half[0].transpose(0, 2, 1).reshape(2, 2, 2)  # first bond, chords, current bond
        for tensor in half[1:]:
            state = np.einsum("acb,bdk->ackd", state, tensor)  # the new chord last
            state = state.reshape(2, -1, 2)
        halves.append(state)
    return np.einsum("acb,bca->", *halves)


def test_python_programs_as_the_readme_says(server, tmp_path):
    script = next(b for b in blocks("sh") if "first_call.py" in b)
    script = script.replace("stubs", str(tmp_path / "stubs"))
    result = subprocess.run(["bash", "-ec", script], cwd=ROOT, capture_output=True, text=True,
                            env={**os.environ, "TENON_SERVER": server.address}, timeout=120)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert " ".join(lines[:2]).split() == ["[[9.", "9.]", "[9.", "9.]]"]
    plan = [line for line in lines[2:] if not line.startswith("axes")]
    for line in plan[:-2]:
        assert re.fullmatch(r"after \d+ trials: 10\^[0-9.]+ multiply-adds", line)
    assert re.fullmatch(r"[0-9]+ slices of at most 2\^[0-6] elements", plan[-2])
    assert float(plan[-1].removeprefix("value: ")) == pytest.approx(value_of_the_ring(), rel=1e-9)
    assert [line.split(" {")[0] for line in lines[2 + len(plan):]] == [
        "axes (0, 1)", "axes (0, 2)", "axes (1, 2)"]
    scores_of_python = [float(x) for x in re.findall(r"trustworthiness': ([0-9.]+)", result.stdout)]
    result = subprocess.run([str(BUILD / "client" / "cpp" / "tenon_measure")],
                            env={**os.environ, "TENON_SERVER": server.address},
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    scores_of_cpp = [float(line.split()[-2]) for line in result.stdout.splitlines()]
    # Both project along the same pairs of axes, in another order.
    assert sorted(scores_of_cpp) == pytest.approx(sorted(scores_of_python), rel=1e-4)


def test_the_python_program_shows_the_details_of_an_error(server, tmp_path):
    script = next(b for b in blocks("sh") if "first_call.py" in b)
    script = script.replace("stubs", str(tmp_path / "stubs")).splitlines()
    program = (ROOT / "client/python/examples/measure.py").read_text().replace("k = 10", "k = 200")
    (tmp_path / "wrong.py").write_text(program)
    commands = "\n".join(line for line in script if "first_call" not in line)
    commands = commands.replace("client/python/examples/measure.py", str(tmp_path / "wrong.py"))
    result = subprocess.run(["bash", "-ec", commands], cwd=ROOT, capture_output=True, text=True,
                            env={**os.environ, "TENON_SERVER": server.address}, timeout=120)
    assert result.returncode == 1
    assert result.stderr.startswith("INVALID_ARGUMENT K_OUT_OF_RANGE: "), result.stderr


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


def test_settings_for_operators_have_the_defaults_that_the_readme_says():
    text = subprocess.run([str(BINARY), "--help"], capture_output=True, text=True, check=True).stdout
    defaults = dict(re.findall(r"^  --(\w+) \(default: (.*?)\)$", text, re.MULTILINE))
    section = README.split("### Ends, waits and cuts\n")[1].split("\n#")[0]
    told = re.findall(r"`--(\w+)` \((\d+) (s|h)\)", section)
    assert {name for name, *_ in told} == {
        "drain_delay", "grace_period", "max_queue_wait", "read_stall_timeout",
        "idle_stream_timeout", "write_stall_timeout"}
    units = {"s": 1, "m": 60, "h": 3600}
    for name, number, unit in told:
        parts = re.findall(r"(\d+)(\w)", defaults[name])
        assert sum(int(n) * units[u] for n, u in parts) == int(number) * units[unit], name
    assert defaults["max_concurrent_streams"] == "128"
    assert "has 128 calls on one connection" in section


def test_security_names_every_quota():
    text = (ROOT / ".github" / "SECURITY.md").read_text().split("**Quotas**")[1]
    for name in ["max_streams_per_principal", "max_stored_bytes_per_principal", "max_jobs",
                 "state_budget"]:
        assert f"`--{name}`" in text, name
