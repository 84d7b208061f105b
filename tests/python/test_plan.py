"""Plans by the command: searched, written, checked, run."""

import json
import math
import subprocess
import sys
import types

import pytest

from conftest import BUILD
from tenond import ROOT

sys.path.append(str(ROOT / "tests" / "bench" / "planner"))
import cost  # noqa: E402  the benchmark's own cost model

TENON = BUILD / "client" / "cpp" / "tenon"
NETWORKS = ROOT / "tests" / "data" / "networks"


@pytest.fixture
def tenon(server):
    def run(*arguments, code=0):
        result = subprocess.run([str(TENON), *map(str, arguments), f"--server={server.address}"],
                                capture_output=True, text=True, timeout=120)
        assert result.returncode == code, result.stderr
        return result.stdout if code == 0 else result.stderr

    return run


def network(name):
    return json.loads((NETWORKS / f"{name}.json").read_text())


def test_a_plan_is_what_its_path_says(tenon):
    name = "qaoa_reg3_n60_p4_zz"
    plan = json.loads(tenon("plan", NETWORKS / f"{name}.json", "--max-trials", 16, "--json"))
    net = network(name)
    figures = cost.evaluate(types.SimpleNamespace(name=name, inputs=net["inputs"],
                                                  output=net["output"], sizes=net["size_dict"]),
                            plan["path_ssa"], plan["sliced"])
    assert math.log10(figures.flops) == pytest.approx(plan["log10_flops"], abs=1e-9)
    assert plan["sliced_log10_flops_total"] == plan["log10_flops"]
    assert plan["provenance"]["trials"] <= 16
    assert plan["log10_flops"] <= net["log10_flops"]  # cotengra's of 60 seconds


def test_the_same_seed_gives_the_same_plan(tenon):
    file = NETWORKS / "rqc_fsim_6x6_m10_amp.json"
    arguments = ("plan", file, "--max-trials", 3, "--plan-cache", "bypass", "--json")
    plans = [json.loads(tenon(*arguments, "--seed", seed)) for seed in (1, 1, 2)]
    assert plans[0]["path_ssa"] == plans[1]["path_ssa"]
    assert plans[0]["path_ssa"] != plans[2]["path_ssa"]


def test_a_target_is_met_and_the_plan_runs(tenon, tmp_path):
    file = NETWORKS / "qaoa_reg3_n60_p4_zz.json"
    target = 2**8
    plan = json.loads(tenon("plan", file, "--target-size", target, "--max-trials", 4, "--output",
                            tmp_path / "plan.json", "--json"))
    assert plan["sliced_log2_max_size"] <= 8
    answer = json.loads(tenon("contract", file, "--plan", tmp_path / "plan.json", "--json"))
    whole = json.loads(tenon("contract", file, "--json"))
    assert answer["report"]["plan"]["slices"] == plan["slices"]
    assert answer["report"]["plan"]["program_fingerprint"] == plan["program_fingerprint"]
    assert answer["value"] == pytest.approx(whole["value"], rel=1e-4)


def test_a_plan_of_another_network_is_refused(tenon, tmp_path):
    tenon("plan", NETWORKS / "ml_bilinear.json", "--output", tmp_path / "plan.json")
    error = tenon("contract", NETWORKS / "ml_tucker4.json", "--plan", tmp_path / "plan.json",
                  code=2)
    assert "another network" in error


@pytest.mark.parametrize("text, what", [
    ("{", "json"),
    ('{"schema": "tenon-plan", "version": 99}', "version"),
    ('{"schema": "something"}', "schema"),
])
def test_a_file_that_is_no_plan_is_refused(tenon, tmp_path, text, what):
    (tmp_path / "plan.json").write_text(text)
    error = tenon("contract", NETWORKS / "ml_bilinear.json", "--plan", tmp_path / "plan.json",
                  code=2)
    assert what in error


def test_a_target_below_the_output_is_refused(tenon):
    error = tenon("plan", "ab,bc->ac", "--shape", "8,8", "--shape", "8,8", "--target-size", 63,
                  code=3)
    assert "UNREACHABLE_TARGET" in error
