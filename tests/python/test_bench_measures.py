"""The benchmark of the measures: its own logic, and that it runs. Peers run where installed."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from conftest import BINARY
from tenond import ROOT

BENCH = ROOT / "tests" / "bench"
sys.path.insert(0, str(BENCH / "contraction"))
sys.path.insert(1, str(BENCH / "measures"))
import cases  # noqa: E402
import corpus  # noqa: E402
import sides  # noqa: E402
import verdict  # noqa: E402
import zadu_peers  # noqa: E402

PEERS = pathlib.Path(os.environ.get("TENON_BENCH_PYTHON", BENCH / ".venv" / "bin" / "python"))
SCORES = [{"trustworthiness": 0.5, "continuity": 0.25}]


def way(seconds=1.0, mib=100, **fields):
    return {"name": "no budget", "seconds": seconds, "cpu_seconds": 0.4,
            "further": seconds / 2, "ratio": 30,
            "memory_limit": None, "scores": SCORES, "parts": {"request_seconds": seconds},
            "memory": {"inputs_bytes": cases.MIB, "peak_bytes": (mib + 1) * cases.MIB}, **fields}


def peer(seconds, scores=SCORES):
    return {"seconds": seconds, "further": seconds, "scores": scores,
            "memory": {"inputs_bytes": 0, "peak_bytes": cases.MIB}}


def entry(*ways, **fields):
    return {"kind": "case", "name": "tnc", "rows": 5000, "judged": True, "floor": None,
            "tenon": list(ways) or [way()],
            "peers": {"zadu, 1 thread": peer(40.0), "zadu, 2 threads": peer(20.0)}, **fields}


def test_the_quickest_setting_of_each_library_counts():
    one, = verdict.requirements([entry()])
    assert (one["line"], one["value"], one["met"]) == (
        "tnc, no budget: zadu, 2 threads ÷ Tenon", 20.0, False)
    both = entry(peers={"zadu, 1 thread": peer(40.0), "sklearn, 1 thread": peer(31.0)})
    assert [found["value"] for found in verdict.requirements([both])] == [40.0, 31.0]


def test_memory_and_the_floor_are_targets_too():
    found = verdict.requirements([entry(way(mib=200, memory_limit=100 * cases.MIB, ratio=10),
                                        floor={"seconds": 0.5}, floor_target=2.5)])
    assert [(one["value"], one["sense"], one["met"]) for one in found] == [
        (20.0, ">=", True), (200.0, "<=", False), (2.0, "<=", True)]


def test_tables():
    lines = verdict.table([entry()]).splitlines()
    assert lines[2] == ("| tnc | 5000 | no budget | 1.00 | 1.00 | 0.400 | 0.500 | 100 | "
                        "40.0 (40.0) | 20.0 (20.0) | 1.00 | 20.0 | 30.0 | NO | 0 |")
    assert len({line.count("|") for line in lines}) == 1
    assert verdict.checklist([entry()]) == (
        " NO  tnc, no budget: zadu, 2 threads ÷ Tenon: 20.0 (>= 30.0)")
    assert verdict.checklist([entry(judged=False)]).startswith("  –  ")
    noisy = entry(way(load={"foreign_processors": 0.5}))
    assert verdict.checklist([noisy]).endswith(
        "     [Tenon, no budget: other work took 0.50 processors]")


def test_scores_that_differ_are_named():
    assert not verdict.mismatches([entry()])
    near = [{"trustworthiness": 0.5 + 1e-12, "continuity": 0.25}]
    far = [{"trustworthiness": 0.5, "continuity": 0.25 + 1e-9}]
    assert not verdict.mismatches([entry(peers={"zadu": peer(1.0, near)})])
    wrong, = verdict.mismatches([entry(peers={"zadu": peer(1.0, far)})])
    assert wrong == "tnc continuity [0] against zadu: differs by 1e-09, allowed is 2.5e-10"
    not_a_number = [{"trustworthiness": float("nan"), "continuity": 0.25}]
    assert verdict.mismatches([entry(peers={"zadu": peer(1.0, not_a_number)})])


def test_random_scores_may_differ_by_their_spread():
    spread = [[{"steadiness": value}] for value in (0.50, 0.51, 0.52)]
    ours = way(scores=spread[0], all_scores=spread)
    for theirs, wrong in ((0.56, 0), (0.58, 1)):  # 5 sqrt(2) 0.01 are allowed
        found = verdict.mismatches([entry(ours, peers={"zadu": peer(1, [{"steadiness": theirs}])})])
        assert len(found) == wrong


def test_further_large_and_small_lines():
    further = {"kind": "further", "tenon": [way(further=0.6, target=0.5), way(target=0.9)]}
    assert [one["met"] for one in verdict.requirements([further])] == [False, True]
    ways = [way(2.0, planned_bytes=120 * cases.MIB, difference=0.0),
            way(1.0, planned_bytes=90 * cases.MIB, difference=0.0)]
    large = {"kind": "large", "rows": 9, "budget": 512 * cases.MIB, "target": 1.8, "tenon": ways}
    assert [one["met"] for one in verdict.requirements([large])] == [
        True, True, True, True, False, True, True]
    small = {"kind": "small", "rows": 200, "target": 3, "tenon": [way(0.002)]}
    one, = verdict.requirements([small])
    assert one["value"] == 2.0 and one["met"]


def test_rows_are_checked_by_definition():
    data, projection, _ = cases.normal_data(100, 5)
    n, k = 100, cases.NEIGHBORS
    local = {"local_trustworthiness": np.zeros(n), "local_continuity": np.zeros(n)}
    for row in range(n):
        near = np.argsort(((data - data[row]) ** 2).sum(axis=1), kind="stable")
        seen = np.argsort(((projection - projection[row]) ** 2).sum(axis=1), kind="stable")
        scale = 2 / (k * (2 * n - 3 * k - 1))
        for key, ranks, others in (("local_trustworthiness", near, seen),
                                   ("local_continuity", seen, near)):
            lost = [list(ranks).index(j) - k for j in others[1:k + 1] if j not in ranks[:k + 1]]
            local[key][row] = 1 - scale * sum(lost)
    assert sides.row_difference(data, projection, local) < 1e-14
    local["local_continuity"] += 1e-3
    assert sides.row_difference(data, projection, local) > 5e-4


def run_bench(*arguments):
    return subprocess.run([sys.executable, str(BENCH / "measures" / "run.py"), *arguments],
                          capture_output=True, text=True, timeout=250)


def test_missing_environment_of_the_peers_fails(tmp_path):
    with pytest.raises(corpus.BenchError, match="tests/bench/setup.sh"):
        zadu_peers.require(tmp_path / "python", 2)
    answer = run_bench("--quick", "--server-binary", str(BINARY), "--python",
                       str(tmp_path / "nothing"))
    assert answer.returncode == 2 and "run tests/bench/setup.sh" in answer.stderr


@pytest.mark.parametrize("zadu,message", [
    ("raise ImportError('no zadu here')", "zadu is missing .no zadu here.*setup.sh"),
    ("__version__ = '0.5.3'", "zadu is 0.5.3, not 0.5.4.*setup.sh")])
def test_missing_or_other_peer_fails_and_is_named(tmp_path, zadu, message):
    # An interpreter that sees no installed package but NumPy and these.
    for name in ("scipy", "sklearn", "numba", "hdbscan"):
        (tmp_path / f"{name}.py").write_text("__version__ = '0'")
    (tmp_path / "threadpoolctl.py").write_text(
        "__version__ = '0'\ndef threadpool_info(): return []")
    (tmp_path / "zadu.py").write_text(zadu)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} \"$@\"\n")
    python.chmod(0o755)
    with pytest.raises(corpus.BenchError, match=message):
        zadu_peers.require(python, 2)


@pytest.mark.parametrize("arguments,message", [
    (["--only", "nothing"], "unknown: nothing"),
    (["--no-peers", "--server-binary", "/nothing"], "no server: /nothing does not exist"),
])
def test_what_is_missing_is_said_at_once(arguments, message):
    answer = run_bench("--quick", *arguments)
    assert answer.returncode == 2 and message in answer.stderr, answer.stderr


def test_tiny_run_of_tenon_alone(tmp_path):
    output = tmp_path / "results.json"
    answer = run_bench("--quick", "--no-peers", "--server-binary", str(BINARY), "--only",
                       "tnc,snc,ca_tnc,further,stream,large,small", "--output", str(output))
    assert answer.returncode == 0, answer.stderr
    results = json.loads(output.read_text())
    assert [found["name"] for found in results["entries"]] == [
        "tnc", "snc", "ca_tnc", "further", "stream", "large", "small"]
    for found in results["entries"]:
        for ours in found["tenon"]:
            assert ours["seconds"] > 0
    assert results["entries"][5]["tenon"][0]["difference"] < 1e-9
    again = run_bench("--from", str(output))
    assert (again.returncode, again.stdout) == (0, answer.stdout)


@pytest.mark.skipif(not any(PEERS.parents[1].glob("lib/python*/site-packages/zadu")),
                    reason="no peers: tests/bench/setup.sh installs them")
def test_tiny_run_against_the_peers():
    answer = run_bench("--quick", "--server-binary", str(BINARY), "--python", str(PEERS),
                       "--peer-threads", "2", "--only", "tnc,snc,stream")
    assert answer.returncode == 0, answer.stderr
    assert "stream of 4: zadu, 2 threads ÷ Tenon" in answer.stdout
