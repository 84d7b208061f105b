"""Plans by the command: searched, written, checked, run."""

import json
import math
import os
import pty
import re
import subprocess
import sys
import types

import numpy as np
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


def test_a_plan_file_has_whole_counts(tenon, tmp_path):
    """Figures come as logarithms, and 9 slices are not 8.999999999999998."""
    shapes = [argument for _ in range(4) for argument in ("--shape", "3,3")]
    tenon("plan", "ab,bc,cd,de->ae", *shapes, "--target-size", 1, "--allow-output-slicing",
          "--max-trials", 2, "--output", tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["costs"]["slices"] == 3**len(plan["sliced"]) and plan["costs"]["slices"] > 9
    for figures in plan["costs"], plan["unsliced_costs"]:
        assert all(value == int(value) for name, value in figures.items() if name != "score")


def test_the_text_names_the_methods_and_zero_sizes(tenon):
    text = tenon("plan", "ab,bc,cd->ad", "--shape", "2,3", "--shape", "3,4", "--shape", "4,5",
                 "--methods", "greedy")
    assert re.search(r"^ *methods +greedy$", text, re.M), text
    text = tenon("plan", "ab,bc,cd->ad", "--shape", "0,3", "--shape", "3,4", "--shape", "4,0")
    assert re.search(r"^ *largest intermediate +0 elements$", text, re.M), text


def test_a_plan_of_another_network_is_refused(tenon, tmp_path):
    tenon("plan", NETWORKS / "ml_bilinear.json", "--output", tmp_path / "plan.json")
    error = tenon("contract", NETWORKS / "ml_tucker4.json", "--plan", tmp_path / "plan.json",
                  code=2)
    assert "another network" in error


@pytest.fixture
def small_plan(tenon, tmp_path):
    """A sliced plan of a small network as text, and what runs an altered one."""
    file = NETWORKS / "qaoa_reg3_n60_p4_zz.json"
    tenon("plan", file, "--target-size", 2**8, "--max-trials", 2, "--output",
          tmp_path / "plan.json")

    def run(alter, code):
        plan = json.loads((tmp_path / "plan.json").read_text())
        alter(plan)
        (tmp_path / "altered.json").write_text(json.dumps(plan))
        return tenon("contract", file, "--plan", tmp_path / "altered.json", "--json", code=code)

    return types.SimpleNamespace(text=(tmp_path / "plan.json").read_text(), run=run)


def scaled(key, name):
    def alter(plan):
        plan[key][name] *= 1 + 1e-6
    return alter


@pytest.mark.parametrize("key, name", [("costs", "flops"), ("costs", "read_write"),
                                       ("costs", "max_size"), ("costs", "slices"),
                                       ("unsliced_costs", "flops"),
                                       ("unsliced_costs", "peak_size")])
def test_figures_that_lie_are_refused(small_plan, key, name):
    error = small_plan.run(scaled(key, name), 2)
    assert f"the plan tells {name} = " in error and "but it is" in error


def test_a_target_that_is_missed_and_a_score_that_lies_are_refused(small_plan):
    assert "target of 4 elements" in small_plan.run(lambda p: p["target"].update(elements=4), 2)

    def score(plan):
        plan["costs"]["score"] = plan["costs"]["flops"]
    assert "the plan tells score = " in small_plan.run(score, 2)


def test_slices_and_paths_of_another_plan_are_refused(tenon, small_plan):
    assert "'nowhere'" in small_plan.run(lambda p: p["sliced"].append("nowhere"), 2)
    assert "BAD_PATH" in small_plan.run(lambda p: p["path_ssa"].pop(), 3)
    # Another plan of the same network: complete, but the figures are not its own.
    other = json.loads(tenon("plan", NETWORKS / "qaoa_reg3_n60_p4_zz.json", "--max-trials", 1,
                             "--methods", "random_greedy", "--seed", 5, "--target-size", 2**8,
                             "--json"))
    error = small_plan.run(lambda p: p.update(path_ssa=other["path_ssa"], sliced=other["sliced"]),
                           2)
    assert "the plan tells " in error


def test_a_plan_that_is_cut_is_refused(tenon, small_plan, tmp_path):
    for share in (0.1, 0.5, 0.99):
        (tmp_path / "cut.json").write_text(small_plan.text[:int(share * len(small_plan.text))])
        error = tenon("contract", NETWORKS / "qaoa_reg3_n60_p4_zz.json", "--plan",
                      tmp_path / "cut.json", code=2)
        assert "json" in error


def test_both_forms_of_paths_are_written_and_run(tenon, tmp_path):
    file = NETWORKS / "qaoa_reg3_n60_p4_zz.json"
    reports = []
    for form in ("ssa", "linear"):
        out = tmp_path / f"{form}.json"
        plan = json.loads(tenon("plan", file, "--max-trials", 2, "--path-format", form, "--output",
                                out, "--json"))
        assert f"path_{form}" in plan and f"path_{form}" in json.loads(out.read_text())
        answer = json.loads(tenon("contract", file, "--plan", out, "--json"))
        reports.append(answer["report"]["plan"])
    assert reports[0]["program_fingerprint"] == reports[1]["program_fingerprint"]
    assert "ssa or linear" in tenon("plan", file, "--path-format", "tree", code=2)


@pytest.mark.parametrize("text, what", [
    ("{", "json"),
    ("[" * 100_000, "json"),
    ('{"schema": "tenon-plan", "version": 1, "network": ' + '{"a":' * 10_000, "json"),
    ('{"schema": "tenon-plan", "version": 99}', "version"),
    ('{"schema": "something"}', "schema"),
])
def test_a_file_that_is_no_plan_is_refused(tenon, tmp_path, text, what):
    (tmp_path / "plan.json").write_text(text)
    error = tenon("contract", NETWORKS / "ml_bilinear.json", "--plan", tmp_path / "plan.json",
                  code=2)
    assert what in error


@pytest.mark.parametrize("arguments, shows", [((), True), (("--json",), False)])
def test_a_terminal_shows_how_far_the_search_is(server, arguments, shows):
    terminal, other_end = pty.openpty()
    command = [str(TENON), "plan", str(NETWORKS / "rqc_fsim_6x6_m10_amp.json"), "--max-time", "1",
               "--plan-cache", "bypass", f"--server={server.address}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=other_end) as process:
        os.close(other_end)
        text = b""
        try:
            while part := os.read(terminal, 4096):
                text += part
        except OSError:  # nobody writes any more
            pass
    os.close(terminal)
    assert process.returncode == 0
    if not shows:
        assert text == b""
        return
    lines = text.decode().split("\r")
    assert any(re.match(r"\d+ trials?, .*log10 flops ", line) for line in lines), lines
    assert text.endswith(b"\r\x1b[K") and b"\n" not in text


def test_a_target_below_the_output_is_refused(tenon):
    error = tenon("plan", "ab,bc->ac", "--shape", "8,8", "--shape", "8,8", "--target-size", 63,
                  code=3)
    assert "UNREACHABLE_TARGET" in error
    error = tenon("plan", "ab,bc->ac", *SHAPES, "--target-size", "2^63", code=2)
    assert "from 1 to 2^63 - 1" in error


def test_the_json_tells_what_the_search_minimised(tenon):
    arguments = ("plan", NETWORKS / "qaoa_reg3_n60_p4_zz.json", "--max-trials", 2, "--target-size",
                 2**8)
    plan = json.loads(tenon(*arguments, "--json"))
    assert plan["log2_executed_score"] < plan["log2_score"]
    assert "as executed" in tenon(*arguments)


SHAPES = ("--shape", "2,3", "--shape", "3,4")


def test_a_plan_of_two_operands_has_a_name(tenon):
    assert "plans/" in tenon("plan", "ab,bc->ac", *SHAPES)


@pytest.fixture
def chain(tmp_path):
    """The files of three matrices, and their product."""
    arrays = [np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4),
              np.arange(20.0).reshape(4, 5)]
    files = [tmp_path / f"{k}.npy" for k in range(3)]
    for file, array in zip(files, arrays):
        np.save(file, array)
    return types.SimpleNamespace(files=files, product=arrays[0] @ arrays[1] @ arrays[2],
                                 plan=tmp_path / "plan.json")


def test_the_plan_of_an_einsum_runs(tenon, chain):
    tenon("plan", "ab,bc,cd->ad", *SHAPES, "--shape", "4,5", "--target-size", 10, "--output",
          chain.plan)
    answer = json.loads(tenon("contract", "ij,jk,kl->il", *chain.files, "--plan", chain.plan,
                              "--json"))
    assert np.array_equal(answer["value"], chain.product)
    error = tenon("contract", "ij,jk,kl->li", *chain.files, "--plan", chain.plan, code=2)
    assert "another network" in error and str(chain.plan) in error
    error = tenon("contract", "ij,jk->ik", *chain.files[:2], "--plan", chain.plan, code=2)
    assert "another network" in error


@pytest.mark.parametrize("arguments, names", [(("--max-trials", 2), "--max-trials"),
                                              (("--replan",), "--replan"),
                                              (("--no-simplify",), "--no-simplify")])
def test_a_plan_file_leaves_nothing_to_search(tenon, chain, arguments, names):
    tenon("plan", "ab,bc,cd->ad", *SHAPES, "--shape", "4,5", "--output", chain.plan)
    error = tenon("contract", "ab,bc,cd->ad", *chain.files, "--plan", chain.plan, *arguments,
                  code=2)
    assert names in error


def test_errors_of_a_plan_file_name_it(tenon, small_plan, tmp_path):
    assert str(tmp_path / "altered.json") in small_plan.run(scaled("costs", "flops"), 2)
    assert str(tmp_path / "altered.json") in small_plan.run(lambda p: p.pop("schema"), 2)


def test_errors_of_a_plan_file_say_it_once(tenon, small_plan, tmp_path):
    error = small_plan.run(scaled("costs", "flops"), 2)
    assert error.count("the plan tells flops") == 1, error
    (tmp_path / "plan.json").write_text('{"schema": "tenon-plan"\n"version": 1}')
    error = tenon("contract", NETWORKS / "ml_bilinear.json", "--plan", tmp_path / "plan.json",
                  code=2)
    assert "line 2, column 9" in error and "expected '}'" in error
    assert "exception" not in error and "101" not in error, error


def test_plans_and_networks_are_told_apart(tenon, small_plan, tmp_path):
    file = NETWORKS / "qaoa_reg3_n60_p4_zz.json"
    assert "this is a network" in tenon("contract", file, "--plan", file, code=2)
    assert "this is a plan" in tenon("plan", tmp_path / "plan.json", code=2)


def test_peaks_that_no_machine_has_are_told_as_such(tenon):
    square = ("--shape", f"{2**28},{2**28}")
    assert "at least 1 PiB" in tenon("plan", "ab,bc->ac", *square, *square)
    text = tenon("plan", "ab,bc->ac", *square, *square)
    assert "the request plans at least 1 PiB; this server has" in text
    assert "slices don't change" in text and "--memory-budget" not in text
    answer = json.loads(tenon("plan", "ab,bc->ac", *square, *square, "--json"))
    assert answer["planned_peak_is_lower_bound"] is True
    assert answer["refusal"]["metadata"]["planned_peak_is_lower_bound"] == "true"
    error = tenon("plan", "ab,bc->ac", *square, *square, "--memory-budget", "1GiB", code=3)
    assert "at least 1 PiB exceeds the budget of 1073741824 bytes" in error
    assert "smallest_budget_bytes" not in error
    # More slices than can be counted, so that there is no program.
    million = ("--shape", "1000000,1000000")
    text = tenon("plan", "ab,ac,ad,bc,bd,cd->", *million * 6, "--target-size", 1, "--max-trials", 1)
    assert re.search("planned peak +unknown", text)


def test_a_plan_that_is_too_large_comes_with_a_way_to_slice_it(start_server, stubs):
    server = start_server("--memory_budget=64MiB")
    server.wait_until_ready(stubs)
    command = [str(TENON), "plan", str(NETWORKS / "rqc_fsim_6x6_m10_amp.json"), "--max-trials", "1",
               f"--server={server.address}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "this server can't run it" in text
    hint = re.search(r"^--memory-budget \S+", text, re.M)
    assert hint, text
    text = subprocess.run([*command, *hint[0].split()], capture_output=True, text=True,
                          check=True).stdout
    assert "can't run it" not in text and "--memory-budget" not in text


def test_the_text_tells_why_the_exact_method_did_not_answer(tenon):
    text = tenon("plan", NETWORKS / "rqc_fsim_6x6_m10_amp.json", "--methods", "exact",
                 "--max-trials", 1)
    assert re.search(r"^ *methods +greedy; exact does not reach \d+ operands$", text, re.M), text
    assert re.search(r"^ *searched .* 1 trial, from", text, re.M), text
    text = tenon("plan", NETWORKS / "ml_bilinear.json", "--methods", "exact")
    assert "no trials needed" in text and "0 trials" not in text, text


def test_the_help_tells_that_a_network_s_own_path_is_not_used(tenon):
    text = subprocess.run([str(TENON), "help", "plan"], capture_output=True, text=True,
                          check=True).stdout
    assert "A path in NETWORK.json is not used" in text and "left alone" not in text


@pytest.mark.parametrize("place", ["nowhere/plan.json", ".", "file.txt/plan.json"])
def test_a_place_that_cannot_be_written_is_told_before_the_search(tenon, tmp_path, place):
    (tmp_path / "file.txt").write_text("")
    # A search of no end: an answer can only come before it.
    error = tenon("plan", NETWORKS / "rqc_fsim_6x6_m10_amp.json", "--max-trials", 10**12,
                  "--output", tmp_path / place, code=2)
    assert "can't be written" in error


def test_a_name_alone_is_a_file_in_the_working_folder(tenon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tenon("plan", "ab,bc->ac", *SHAPES, "--max-trials", 1, "--output", "plan.json")
    assert (tmp_path / "plan.json").exists()


def test_no_method_is_told_as_such(tenon):
    error = tenon("plan", "ab,bc->ac", *SHAPES, "--methods", "", code=2)
    assert "--methods" in error and "cpu" not in error


def test_the_help_tells_the_longest_search(tenon):
    assert "600" in subprocess.run([str(TENON), "help", "plan"], capture_output=True, text=True,
                                   check=True).stdout
