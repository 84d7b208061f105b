"""The planner benchmark's own logic: costs, verdicts, and a run with a stand-in for the command."""

import json
import subprocess
import sys

import pytest

from tenond import ROOT

BENCH = ROOT / "tests" / "bench"
sys.path[1:1] = [str(BENCH / "planner"), str(BENCH / "contraction")]
import cost  # noqa: E402
import networks  # noqa: E402
import planner_peers  # noqa: E402
import planner_verdict as verdict  # noqa: E402
import tenon_side  # noqa: E402

CORPUS = ROOT / "tests" / "data" / "networks"

# Speaks the command's interface: contracts the inputs one after the other, without slices.
STAND_IN = """#!{python}
import json, sys
if sys.argv[1] == "version":
    print("stand-in"); sys.exit()
assert sys.argv[1] == "plan" and "--json" in sys.argv and "--max-time" in sys.argv
count = len(json.load(open(sys.argv[2]))["inputs"])
path = [[0, 1]] + [[k, count + k - 2] for k in range(2, count)]
print(json.dumps({{"path": path, "sliced_indices": [], {extra}}}))
"""


def network(inputs, output, **sizes):
    return networks.Network("net", inputs, output, sizes, "made")


def test_golden_costs():
    chain = network([["a", "b"], ["b", "c"], ["c", "d"]], ["a", "d"], a=2, b=4, c=8, d=3)
    best = cost.evaluate(chain, [(1, 2), (0, 3)])
    assert (best.flops, best.read_write, best.largest) == (120, 94, 12)
    assert best.score("weighted") == 6136 and best.score("flops") == 120
    dot = cost.evaluate(network([["a"], ["a"]], [], a=7), [(0, 1)])
    assert (dot.flops, dot.read_write, dot.score("weighted")) == (7, 15, 967)
    outer = network([["a"], ["b"], ["c"], ["d"]], ["a", "b", "c", "d"], a=2, b=2, c=3, d=3)
    assert cost.evaluate(outer, [(0, 2), (1, 3), (4, 5)]).score("weighted") == 4528


def test_repeated_and_hyper_indices():
    repeated = network([["a", "a", "b"], ["b"]], [], a=3, b=4)
    assert cost.evaluate(repeated, [(0, 1)]) == cost.Cost(12, 36 + 4 + 1, 1, 1)
    hyper = network([["h"], ["h"], ["h"]], [], h=5)
    assert cost.evaluate(hyper, [(0, 1), (2, 3)]).largest == 5


def test_slices_multiply_everything():
    chain = network([["a", "b"], ["b", "c"]], ["a", "c"], a=2, b=4, c=8)
    sliced = cost.evaluate(chain, [(0, 1)], ["b", "c"])
    assert sliced == cost.Cost(2 * 32, (2 + 1 + 2) * 32, 2, 32)


@pytest.mark.parametrize("path", [[(0, 1)], [(0, 1), (0, 2)], [(0, 1), (3,)], [(0, 1), (2, 4)]])
def test_a_broken_path_is_an_error(path):
    with pytest.raises(cost.PathError):
        cost.evaluate(network([["a"], ["a"], ["a"]], [], a=2), path)


def test_costs_of_the_corpus_files():
    for known in networks.corpus(CORPUS):
        data = json.loads((CORPUS / f"{known.name}.json").read_text())
        found = cost.evaluate(known, data["path_ssa"], data["sliced"])
        assert found.flops == pytest.approx(data["flops"], rel=1e-12)
        assert (found.largest, found.slices) == (data["max_size"], data["nslices"])


def test_linear_paths():
    assert cost.ssa_from_linear([(0, 2), (0, 1)], 3) == [[0, 2], [1, 3]]


def test_made_networks_are_what_they_are_called_and_always_the_same():
    made = {net.name: net for net in networks.made()}
    regular = made["made_randreg3_n1000"]
    assert len(regular.inputs) == 1000 and all(len(legs) == 3 for legs in regular.inputs)
    assert all(len(set(legs)) == 3 for legs in regular.inputs)
    assert len(made["made_lattice_12x12"].sizes) == 2 * 12 * 11
    assert regular.digest() == networks.random_regular(1000, 3, seed=1).digest()


def test_a_plan_is_read_in_every_form_that_it_may_have():
    path = [[0, 1], [2, 3]]
    assert tenon_side.read_plan({"path_ssa": path, "log10_flops": 2.0}, 3) == {
        "path": path, "sliced": [], "log10_flops": 2.0}
    read = tenon_side.read_plan({"plan": {"path": [[0, 1], [0, 1]], "path_format": "linear",
                                          "sliced": ["a"], "log10_flops": 1.0,
                                          "sliced_log10_flops_total": 2.0}}, 3)
    assert read == {"path": path, "sliced": ["a"], "log10_flops": 2.0}


def test_only_plans_within_the_target_count():
    chain = network([["a", "b"], ["b", "c"], ["c", "d"]], ["a", "d"], a=2, b=4, c=8, d=3)
    plans = [{"path": [(0, 1), (2, 3)], "sliced": []}, {"path": [(1, 2), (0, 3)], "sliced": []}]
    assert planner_peers.judge(chain, None, "flops", plans)["log2_largest"] == 4
    assert planner_peers.judge(chain, 12, "flops", plans)["path"] == [(1, 2), (0, 3)]
    assert planner_peers.judge(chain, 5, "flops", plans) is None


def figures(score, seconds=2.0, **fields):
    best = None if score is None else {"log10_run": score, "log10_score": score, "log10_flops": score}
    return {"best": best, "seconds": seconds, **fields}


def cell(seconds, name="net", **scores):
    return {"network": name, "digest": "0", "tensors": 20, "seconds": seconds, "target": 2**27,
            "objective": "flops",
            "parties": {party: figures(score) for party, score in scores.items()}}


def test_short_table_has_a_row_for_each_network():
    cells = [cell(2.0, tenon=9.0, cotengra=10.0, omeco=9.5), cell(10.0, tenon=8.0, cotengra=8.0),
             cell(2.0, "other", cotengra=7.0)]
    assert verdict.short_table(cells).splitlines() == [
        "| network | flops 2 s | flops 10 s |",
        "| --- | --- | --- |",
        "| net | 9.00 / 9.50 | 8.00 / 8.00 |",
        "| other | – / 7.00 | – |",
        "| **geometric mean of ratios** | 0.316 | 1 |"]


def test_ratios_are_over_the_better_peer():
    good = cell(2.0, tenon=9.0, cotengra=10.0, omeco=9.5)
    assert verdict.ratio(good) == pytest.approx(10**-0.5)
    worse = cell(2.0, "other", tenon=9.1, cotengra=9.0, omeco=None)
    found = verdict.cell_requirements([good, worse])
    assert [r["met"] for r in found] == [True, False, True, True]
    assert found[-1]["value"] == pytest.approx(10**-0.2)


def test_a_plan_that_tenon_does_not_find_is_not_met():
    found = verdict.cell_requirements([cell(2.0, tenon=None, cotengra=10.0)])
    assert not found[0]["met"]
    assert verdict.faults({"cells": [cell(2.0, tenon=None, cotengra=10.0)]}) != []


def test_catching_up_compares_three_seconds_with_sixty():
    cells = [cell(60.0, tenon=9.0, cotengra=10.0), cell(3.0, tenon=9.9)]
    assert [r["met"] for r in verdict.catch_up_requirements(cells)] == [True, True]
    cells[1]["parties"]["tenon"]["seconds"] = 3.5
    assert [r["met"] for r in verdict.catch_up_requirements(cells)] == [True, False]
    assert [r["met"] for r in verdict.catch_up_requirements(cells[:1])] == [False]
    assert verdict.cell_requirements(cells[1:]) == []


def run(tmp_path, *arguments, extra='"log10_flops": None'):
    stand_in = tmp_path / "tenon"
    stand_in.write_text(STAND_IN.format(python=sys.executable, extra=extra))
    stand_in.chmod(0o755)
    return subprocess.run(
        [sys.executable, str(BENCH / "planner" / "run.py"), "--networks", str(CORPUS),
         "--only", "ml_bilinear,made_chain_100", "--seconds", "1", "--parts", "cells",
         "--tenon-binary", str(stand_in), "--no-server", "--target", "0",
         "--output", str(tmp_path / "out.json"), *arguments], capture_output=True, text=True)


def test_a_run_is_kept_and_gone_on_with(tmp_path):
    first = run(tmp_path, "--parties", "tenon", "--objectives", "flops")
    assert first.returncode == 0, first.stderr
    second = run(tmp_path, "--parties", "tenon")
    assert second.returncode == 0, second.stderr
    results = json.loads((tmp_path / "out.json").read_text())
    assert [run["tenon"]["version"] for run in results["runs"]] == ["stand-in"] * 2
    assert str(tmp_path) not in json.dumps(results["runs"])  # files are named without their folders
    assert results["runs"][0]["tenon"]["command"].startswith("tenon plan NETWORK.json")
    kept = {(c["network"], c["objective"]): c["parties"]["tenon"]["run"] for c in results["cells"]}
    assert kept == {("ml_bilinear", "flops"): 0, ("ml_bilinear", "weighted"): 1,
                    ("made_chain_100", "flops"): 0, ("made_chain_100", "weighted"): 1}


def test_figures_of_the_command_that_differ_from_its_path_fail_the_run(tmp_path):
    answer = run(tmp_path, "--parties", "tenon", extra='"log10_flops": 1.5')
    assert answer.returncode == 1 and "tells log10 flops 1.5" in answer.stderr


def test_a_missing_peer_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(planner_peers.VENV, "omeco", tmp_path)
    with pytest.raises(planner_peers.BenchError, match="omeco is missing"):
        planner_peers.require(["omeco"], 1)
