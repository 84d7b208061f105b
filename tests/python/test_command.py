"""The command `tenon`: help, completion, JSON, files, and what the server keeps."""

import json
import os
import re
import subprocess
import zipfile

import numpy as np
import pytest

from conftest import BUILD, ROOT

TENON = BUILD / "client" / "cpp" / "tenon"
TABLE = json.loads(subprocess.run([str(TENON), "completion", "--json"], capture_output=True,
                                  check=True).stdout)["commands"]
NAMES = [command["name"] for command in TABLE]


@pytest.fixture
def tenon(server, tmp_path):
    """tenon("info", "--json") -> the parsed standard output; code= for the expected exit code."""

    def run(*arguments, code=0, parse=True):
        result = subprocess.run([str(TENON), *map(str, arguments)], cwd=tmp_path,
                                capture_output=True, text=True, timeout=120,
                                env={**os.environ, "TENON_SERVER": server.address})
        assert result.returncode == code, result.stderr
        if code != 0:
            return result.stderr
        return json.loads(result.stdout) if parse else result.stdout

    return run


@pytest.mark.parametrize("name", NAMES)
def test_help_of_every_command_teaches(name):
    text = subprocess.run([str(TENON), *name.split(), "--help"], capture_output=True, text=True,
                          check=True).stdout
    assert text.startswith(f"Usage: tenon {name}")
    example = re.search(r"\nExample:\n  (.+)\n", text)
    assert example and re.search(rf"\btenon {name}\b", example.group(1))
    assert re.search(r"\nExit codes:\n  0 ", text)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", NAMES)
def test_examples_have_options_that_exist(name):
    text = subprocess.run([str(TENON), "help", *name.split()], capture_output=True, text=True,
                          check=True).stdout
    example = re.search(r"\nExample:\n  (.+)\n", text).group(1)
    known = {option["name"] for c in TABLE if c["name"] == name for option in c["options"]}
    assert set(re.findall(r" --([\w-]+)", example)) <= known


@pytest.mark.parametrize("name", NAMES)
def test_every_command_speaks_json(name):
    options = next(c["options"] for c in TABLE if c["name"] == name)
    assert "json" in [option["name"] for option in options]


def test_commands_without_a_server_answer_as_json(tenon):
    assert re.fullmatch(r"[0-9.]+", tenon("version", "--json")["version"])
    made = tenon("token", "new", "alice", "--role", "admin", "--json")
    assert re.fullmatch(r"alice admin [0-9a-f]{64}", made["line"])
    assert len(made["token"]) >= 43


def test_questions_to_a_server_are_answered_as_json(tenon):
    assert tenon("info", "--json", "--provider", "cpu")["providers"][0]["name"] == "cpu"
    assert "UNKNOWN_PROVIDER" in tenon("info", "--provider", "nowhere", code=3)
    assert {m["alias"] for m in tenon("measures", "--json")} > {"tnc", "stress"}
    assert tenon("doctor", "--json")["ok"] in (True, False)
    assert tenon("admin", "trim", "--json")["freed_bytes"] >= 0
    tenon("contract", "a,a->", "--json", "--varying", "0=ones.npy", "--varying", "1=ones.npy",
          code=2)
    methods = tenon("statistics", "tenon.v1.ContractionService", "--json")["methods"]
    assert all(m["method"].startswith("tenon.v1.ContractionService") for m in methods)
    assert tenon("estimate", "ab,bc->ac", "--shape", "2,3", "--shape", "3,4", "--json")["plan"]
    assert tenon("plan", "ab,bc->ac", "--shape", "2,3", "--shape", "3,4", "--json")["slices"] == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_every_command_and_option(shell):
    text = subprocess.run([str(TENON), "completion", shell], capture_output=True, text=True,
                          check=True).stdout
    for command in TABLE:
        for word in command["name"].split():
            assert re.search(rf"\b{word}\b", text)
        for option in command["options"]:
            dashed = f"-l {option['name']} " if shell == "fish" else f"--{option['name']}"
            assert dashed in text, (command["name"], option["name"])


def complete(line, folder):
    """What a bash that has read the completion offers at the end of the line."""
    script = r"""
source <("$TENON" completion bash)
read -ra COMP_WORDS <<<"$LINE"
[[ $LINE == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_tenon
printf '%s\n' "${COMPREPLY[@]}"
complete -p tenon >&2
"""
    result = subprocess.run(["bash", "--norc", "-c", script], cwd=folder, capture_output=True,
                            text=True, check=True,
                            env={**os.environ, "TENON": str(TENON), "LINE": line})
    assert "-F _tenon tenon" in result.stderr
    return set(result.stdout.split("\n")) - {""}


def test_completion_in_bash(tmp_path):
    (tmp_path / "with space.npy").touch()
    (tmp_path / "b.npy").touch()
    assert complete("tenon con", tmp_path) == {"contract"}
    assert complete("tenon ", tmp_path) == {n.split()[0] for n in NAMES} | {"help"}
    assert complete("tenon help mea", tmp_path) == {"measure", "measures"}
    assert complete("tenon job ", tmp_path) == {"submit", "list", "show", "watch", "result",
                                                "cancel", "delete"}
    assert complete("tenon dataset put --dis", tmp_path) == {"--display-name"}
    assert complete("tenon contract --no", tmp_path) == {"--normalize", "--no-simplify",
                                                         "--no-value"}
    assert complete("tenon contract --objective s", tmp_path) == {"seconds"}
    assert complete("tenon contract ab,bc->ac ", tmp_path) == {"with space.npy", "b.npy"}
    assert complete("tenon measure --hd w", tmp_path) == {"with space.npy"}
    assert complete("tenon admin d", tmp_path) == {"drain"}


def test_completion_of_no_shell(tenon):
    assert "expected is bash, zsh or fish" in tenon("completion", "tcsh", code=2)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_operands_of_an_archive(tenon, tmp_path, save):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 400)), rng.normal(size=(400, 5)).T
    save(tmp_path / "in.npz", b=b.T, a=a)
    tenon("contract", "ab,bc->ac", "in.npz:a", "in.npz:b", "--output", "c.npz", "--json")
    np.testing.assert_allclose(np.load(tmp_path / "c.npz")["result"], a @ b.T, rtol=1e-12)
    save(tmp_path / "order.npz", a, b.T)
    out = tenon("contract", "ab,bc->ac", "order.npz", "--json")
    np.testing.assert_allclose(out["value"], a @ b.T, rtol=1e-12)
    (tmp_path / "net.json").write_text(json.dumps(
        {"inputs": [["a", "b"], ["b", "c"]], "output": ["a", "c"],
         "size_dict": {"a": 3, "b": 400, "c": 5}}))
    for given in (["--operands", "order.npz"],
                  ["--operand", "1=in.npz:b", "--operand", "0=in.npz:a"]):
        out = tenon("contract", "net.json", *given, "--json")
        np.testing.assert_allclose(out["value"], a @ b.T, rtol=1e-12)
    np.savez(tmp_path / "three.npz", a, b, a)
    assert "has 3 arrays, but the network has 2" in tenon(
        "contract", "net.json", "--operands", "three.npz", code=2)


def test_archives_that_are_no_good(tenon, tmp_path):
    np.savez(tmp_path / "good.npz", x=np.ones(3), y=np.ones(4))
    assert "x, y" in tenon("contract", "a->", "good.npz:z", code=2)
    assert "has 2 operand" in tenon("contract", "a,a->", "good.npz:x", code=2)
    (tmp_path / "text.npz").write_text("no archive at all, but longer than its end would be")
    assert "no .npz file" in tenon("contract", "a->", "text.npz", code=2)
    assert "does not exist" in tenon("contract", "a->", "nowhere.npz", code=2)
    data = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(data[:len(data) // 2])
    assert "no .npz file" in tenon("contract", "a->", "half.npz", code=2)
    with zipfile.ZipFile(tmp_path / "bz.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write(tmp_path / "good.npz", "x.npy")
    assert "stored and deflated" in tenon("contract", "a->", "bz.npz", code=2)
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("x.npy", b"not an array")
        archive.writestr("readme.txt", b"left out")
    assert "array 'x'" in tenon("contract", "a->", "other.npz", code=2)
    np.savez(tmp_path / "object.npz", np.array([{}], dtype=object))
    assert "array .arr_0." in re.sub("'", ".", tenon("contract", "a->", "object.npz", code=2))


def test_many_sets_of_operands(tenon, tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(7, 4, 5))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    command = ["contract", "ab,bc->ac", "a.npy", "--varying", "1=b.npy", "--json"]
    sets = tenon(*command, "--output", "c.npz")["sets"]
    np.testing.assert_allclose([s["value"] for s in sets], a @ b, rtol=1e-12)
    with np.load(tmp_path / "c.npz") as archive:
        assert archive.files == [f"set{k}" for k in range(7)]
        np.testing.assert_allclose(archive["set6"], a @ b[6], rtol=1e-12)
    tenon(*command, "--output", "c.npy")
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"), a @ b, rtol=1e-12)
    tenon(*command, "--output", "n.npz", "--normalize")
    with np.load(tmp_path / "n.npz") as archive:
        scales = 10.0 ** archive["log10_scale"]
        np.testing.assert_allclose([archive[f"set{k}"] * scales[k] for k in range(7)], a @ b,
                                   rtol=1e-12)
    np.save(tmp_path / "a2.npy", np.ones((6, 3, 4)))
    assert "it has 7 values, but another operand has 6" in tenon(
        "contract", "ab,bc->ac", "--varying", "0=a2.npy", "--varying", "1=b.npy", code=2)


def test_options_of_requests_reach_the_server(tenon, tmp_path, server):
    np.save(tmp_path / "a.npy", np.ones((3, 3), np.float32))
    report = tenon("contract", "ab,bc->ac", "a.npy", "a.npy", "--json", "--request-id", "mine",
                   "--priority", "bulk", "--max-queue", "30", "--checksums", "--report",
                   "timeline", "--result-dtype", "float64", "--accumulate-dtype", "float64",
                   "--output", "c.npy")["report"]
    assert report["request_id"] == "mine"
    assert np.load(tmp_path / "c.npy").dtype == np.float64
    assert "expected is interactive, default or bulk" in tenon(
        "contract", "ab,bc->ac", "a.npy", "a.npy", "--priority", "first", code=2)
    assert "NOT_FOUND" in tenon("contract", "ab,bc->ac", "a.npy", "a.npy", "--plan-id",
                                "plans/nowhere", code=3)
    plan = tenon("plan", "ab,bc->ac", "a.npy", "a.npy", "--json", "--flops-weight", "1",
                 "--read-write-weight", "0", "--target-memory", "1GiB")
    assert plan["slices"] == 1


def test_projections_of_an_archive(tenon, tmp_path):
    rng = np.random.default_rng(0)
    hd = rng.normal(size=(60, 5))
    np.savez(tmp_path / "data.npz", hd=hd, labels=np.arange(60) % 3)
    np.savez_compressed(tmp_path / "runs.npz", first=hd[:, :2], second=hd[:, 2:4])
    lines = tenon("measure", "--hd", "data.npz:hd", "--labels", "data.npz:labels", "--spec",
                  "tnc:k=5", "--spec", "dsc", "--local", "local.npz", "--json", "--priority",
                  "interactive", "--request-id", "mine", "runs.npz", parse=False).splitlines()
    names = [json.loads(line)["name"] for line in lines]
    assert names == ["runs.npz:first", "runs.npz:second"]
    with np.load(tmp_path / "local.npz") as local:
        assert {name.split(".")[0] for name in local.files} == {"0", "1"}
        assert local["1.0.local_trustworthiness"].shape == (60,)


def test_data_sets_and_tensors_that_stay(tenon, tmp_path):
    rng = np.random.default_rng(1)
    hd = rng.normal(size=(200, 60))  # 96 kB: in chunks
    np.save(tmp_path / "hd.npy", hd)
    np.save(tmp_path / "ld.npy", hd[:, :2])
    made = tenon("dataset", "put", "hd.npy", "--display-name", "mine", "--checksums", "--json")
    name = made["dataset"]["name"]
    assert not made["existed"]
    assert tenon("dataset", "put", "hd.npy", "--json")["existed"]
    assert name in [d["name"] for d in tenon("dataset", "list", "--json")]
    assert tenon("dataset", "show", name.split("/")[1], "--json")["spec"]["shape"] == [200, 60]
    tenon("measure", "--dataset", name, "--spec", "stress", "ld.npy", "--json", parse=False)
    assert tenon("dataset", "delete", name, "--json")["freed_bytes"] >= hd.nbytes
    assert "NOT_FOUND" in tenon("dataset", "show", name, code=3)

    name = tenon("tensor", "put", "hd.npy", "--ttl", "600", "--json")["tensor"]["name"]
    assert name in tenon("tensor", "list", parse=False)
    out = tenon("contract", "ab,ac->bc", name, "ld.npy", "--json")
    np.testing.assert_allclose(out["value"], hd.T @ hd[:, :2], rtol=1e-12)
    assert tenon("tensor", "delete", name, "--json")["freed_bytes"] == hd.nbytes


def test_a_server_that_starts_later_is_waited_for(tenon):
    """Nobody has answered yet, so an address where nobody listens is an error at once."""
    assert "cannot reach" in tenon("info", "--server", "unix:/nowhere/sock", "--retry", "600",
                                   code=4)
    assert "--retry" in tenon("info", "--retry", "soon", code=2)
