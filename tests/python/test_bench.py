"""The benchmark's own logic: what it makes of the times that it is given. No peer runs here."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from tenond import ROOT

BENCH = ROOT / "tests" / "bench" / "contraction"
sys.path.insert(0, str(BENCH))
import corpus  # noqa: E402
import load  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
import timing  # noqa: E402

NETWORKS = ROOT / "tests" / "data" / "networks"
MIB = 1 << 20


def tenon(seconds=2.0, **fields):
    return {"seconds": seconds, "over": False, "real_flops": 80e9,
            "end_to_end_seconds": 1.25 * seconds,
            "memory": {"rss_before_bytes": 30 * MIB, "rss_peak_bytes": 90 * MIB}, **fields}


def peer(seconds, over=False, **fields):
    return {"seconds": seconds, "over": over,
            "memory": {"inputs_bytes": 50 * MIB, "peak_bytes": 170 * MIB}, **fields}


def entry(name="net", **fields):
    base = {"name": name, "dtype": "float64", "nslices": 4, "steps": 10, "real_flops": 100e9,
            "gemm_gflops": {"numpy": 100.0, "torch": 80.0}, "tenon": tenon(),
            "peers": {"cotengra-numpy": peer(6.0), "cotengra-torch": peer(5.0),
                      "opt_einsum-numpy": peer(40.0, over=True)},
            "floor": {"floor_seconds": 1.6}}
    return {**base, **fields}


def test_ratios_and_shares_of_one_network():
    d = report.derive(entry())
    assert d["ratios"] == {"cotengra-numpy": 3.0, "cotengra-torch": 2.5, "opt_einsum-numpy": 20.0}
    assert d["fastest"] == "cotengra-torch" and d["fastest_ratio"] == 2.5
    assert d["least"] == ["opt_einsum-numpy"]
    assert d["gflops"] == 40.0 and d["share"] == 0.4  # of the better GEMM, with the work really run
    assert d["floor"] == 1.25
    assert d["wire"] == pytest.approx(0.2)
    assert d["memory_ratio"] == 0.5  # 60 MiB over 120 MiB, both above the inputs


def test_a_peer_that_was_stopped_is_never_the_fastest():
    d = report.derive(entry(peers={"cotengra-numpy": peer(6.0),
                                   "cotengra-torch": peer(1.0, True)}))
    assert d["fastest"] == "cotengra-numpy"
    d = report.derive(entry(peers={"cotengra-torch": peer(1.0, True)}))
    assert d["fastest"] is None and d["fastest_ratio"] is None


def test_tenon_over_its_time_has_no_ratio():
    d = report.derive(entry(tenon={"seconds": 400.0, "over": True}))
    assert d["ratios"] == {} and d["seconds"] is None and d["fastest"] == "cotengra-torch"


def test_memory_of_a_few_pages_is_not_compared():
    assert report.memory_ratio(10_000, 200_000) == 1.0
    assert report.memory_ratio(3 * MIB, 1000) == 3.0
    assert report.memory_ratio(None, 1000) is None


def test_geometric_mean():
    assert report.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert report.geometric_mean(iter([])) is None


def test_summary_takes_geometric_means_and_names_the_slower_networks():
    slow = entry("slow", tenon=tenon(8.0))
    strong = entry("strong", tenon=tenon(8.0), gemm_gflops={"numpy": 25.0})
    means = report.summary([entry(), slow, strong])
    assert means["ratios"]["cotengra-numpy"] == pytest.approx((3.0 * 0.75 * 0.75) ** (1 / 3))
    assert means["least"] == ["opt_einsum-numpy"]
    assert means["worst_floor"] == 5.0
    # 5 s for 100 GFLOP are 20 GFLOP/s: 80 % of a peak of 25, but 20 % of one of 100.
    assert means["slower"] == [("slow", "float64", 0.625, False),
                               ("strong", "float64", 0.625, True)]
    text = report.verdict([entry(), slow, strong])
    assert "slower than the fastest peer: slow float64, 0.625\n" in text
    assert "at least: it was stopped on some" in text


def test_networks_under_a_millisecond_are_judged_by_the_step():
    short = entry(tenon=tenon(5e-4), floor={"floor_seconds": 1e-6})
    assert report.summary([short])["worst_floor"] is None
    assert "| 50 µs/step |" in report.table([short])


def test_markdown_table():
    lines = report.table([entry("a"), entry("b", floor=None)]).splitlines()
    assert lines[0].startswith("| network | dtype | seconds | × cotengra-numpy | × cotengra-torch |")
    assert lines[2] == ("| a | float64 | 2.00 | 3.0 | 2.5 | > 20 | 2.5 | 40.0 | 40 % | 1.2 | 60.0 | "
                        "0.50 | 2.50 | 20 % |")
    assert " 40 % | – | " in lines[3]
    assert lines[4].startswith("| **geometric mean** |  |  | 3.0 | 2.5 | > 20 | 2.5 |")
    assert len({line.count("|") for line in lines}) == 1


def test_peer_table_says_what_was_scaled_and_what_was_stopped():
    peers_alone = entry(tenon=None, peers={"cotengra-numpy": peer(6.0, scaled_from=2),
                                           "opt_einsum-numpy": peer(160.0, over=True)})
    row = report.peer_table([peers_alone]).splitlines()[2]
    assert row == "| net | float64 | 4 | 6.00 (2 sl.) | > 160 | cotengra-numpy | 17 % | 120 |"


@pytest.mark.parametrize("value,text", [(None, "–"), (0, "0"), (1234.5, "1234"),
                                        (12.34, "12.3"), (0.0123, "0.0123"),
                                        (4.56e-5, "4.56e-05")])
def test_numbers_for_people(value, text):
    assert report.number(value) == text


@pytest.mark.parametrize("slice_seconds,nslices,left,expected", [
    (0.001, 1, 40, (1, 25)),      # short: many
    (0.1, 4, 40, (4, 7)),
    (1.0, 4, 40, (4, 3)),
    (1.0, 16, 38, (16, 2)),       # everything fits, but not three times
    (1.0, 64, 38, (12, 3)),       # the first slices, three times
    (10.0, 64, 38, (2, 1)),       # never fewer than two
    (25.0, 64, 100, (1, 1)),      # a long slice stands alone
    (15.0, 64, 20, (1, 1)),       # no time for two
    (15.0, 1, 10, (1, 1)),
    (0.0, 1, 10, (1, 25)),
])
def test_what_is_timed(slice_seconds, nslices, left, expected):
    assert timing.plan(slice_seconds, nslices, left) == timing.Schedule(*expected)


def test_repetitions_can_be_asked_for_but_not_beyond_the_time():
    assert timing.plan(0.001, 1, 40, repeats=2) == timing.Schedule(1, 2)
    assert timing.plan(5.0, 2, 21, repeats=9) == timing.Schedule(2, 2)


def test_slices_are_scaled_to_the_whole():
    assert timing.scaled(3.0, 2, 64) == 96.0


def event(kind, **fields):
    return {"event": kind, **fields}


def test_outcome_is_the_median_scaled_to_all_slices():
    events = [event("begin"), event("cold", seconds=9.0), event("warm", seconds=4.0),
              *(event("timed", seconds=s, slices=2) for s in (6.0, 2.0, 4.0)),
              event("memory", inputs_bytes=1, peak_bytes=2),
              event("check", difference=0.0, tolerance=1.0), event("done")]
    answer = peers.outcome(events, None, 8)
    assert answer["seconds"] == 16.0 and answer["scaled_from"] == 2 and not answer["over"]
    assert answer["memory"] == {"inputs_bytes": 1, "peak_bytes": 2}
    assert answer["raw"] == {"cold": [9.0], "warm": [4.0], "timed": [6.0, 2.0, 4.0]}


def test_outcome_of_a_peer_that_was_stopped():
    begin, cold, warm = event("begin"), event("cold", seconds=9.0), event("warm", seconds=4.0)
    over = peers.outcome([begin], 50.0, 8)
    assert over["over"] and over["seconds"] == 400.0 and over["scaled_from"] == 1
    after_cold = peers.outcome([begin, cold], 50.0, 8)
    assert not after_cold["over"] and after_cold["cold_only"] and after_cold["seconds"] == 72.0
    after_warm = peers.outcome([begin, cold, warm], 50.0, 8)
    assert not after_warm["cold_only"] and after_warm["seconds"] == 32.0


def test_sides_take_turns_and_hopeless_ones_are_left_out():
    calls = []

    def side(name, over=False):
        def call():
            calls.append(name)
            return {"seconds": float(len(calls)), "over": over}
        return call

    rounds = timing.interleave({"a": side("a"), "b": side("b", over=True), "c": side("c")}, 3, 0)
    assert calls == ["a", "b", "c", "a", "c", "a", "c"]
    assert [figures["seconds"] for figures in rounds["a"]] == [1.0, 4.0, 6.0]
    assert timing.hopeless({"over": False, "cold_only": True})
    assert not timing.hopeless({"over": False, "cold_only": False})


def test_a_disturbed_side_is_measured_again_a_few_times():
    loads = iter([0.5, 0.0, 0.5, 0.5, 0.5])
    calls = []

    def noisy():
        calls.append("noisy")
        return {"seconds": 1.0, "over": False, "load": {"foreign_processors": next(loads)}}

    def quiet():
        calls.append("quiet")
        return {"seconds": 1.0, "over": False, "load": {"foreign_processors": 0.05}}

    timing.interleave({"noisy": noisy, "quiet": quiet}, 2, 2)
    assert calls == ["noisy", "noisy", "quiet", "noisy", "noisy", "quiet"]


def test_the_gemm_peak_is_measured_again_when_it_was_disturbed(monkeypatch):
    answers = iter([(200.0, 0.9), (300.0, 0.0), (100.0, 0.0)])

    def converse(python, job):
        rate, foreign = next(answers)
        return [{"event": "gemm", "gflops": dict.fromkeys(job["dtypes"], rate),
                 "load": {"foreign_processors": foreign}}], None

    monkeypatch.setattr(peers, "_converse", converse)
    peaks = peers.gemm_peaks("python", ["cotengra-torch"], {"float32"}, 2, 2)
    assert peaks == {"numpy": {"float32": 300.0}, "torch": {"float32": 100.0}}


def test_the_quickest_round_counts_with_all_that_belongs_to_it():
    rounds = [peer(3.0, tag=0), peer(2.0, tag=1), peer(1.0, over=True), peer(4.0, tag=3)]
    best = timing.best_round(rounds)
    assert (best["seconds"], best["tag"], best["rounds"]) == (2.0, 1, [3.0, 2.0, 1.0, 4.0])
    assert timing.best_round([peer(1.0, over=True), peer(5.0, over=True)])["seconds"] == 5.0


def test_other_work_on_the_machine_is_noticed(monkeypatch):
    clock = {"busy": 100.0, "own": 10.0, "now": 0.0}
    monkeypatch.setattr(load, "_busy_seconds", lambda: clock["busy"])
    monkeypatch.setattr(load, "own_seconds", lambda pid: clock["own"] / 2)
    monkeypatch.setattr(load.time, "monotonic", lambda: clock["now"])
    watch = load.ForeignLoad([1, 2])
    clock.update(busy=120.0, own=26.0, now=8.0)
    assert watch.processors() == 0.5  # 20 s of work, 16 of them own, in 8 s
    noisy = entry(tenon=tenon(load={"foreign_processors": 0.5}))
    assert report.disturbed(noisy) == {"tenon": 0.5}
    assert report.disturbed(entry(tenon=tenon(load={"foreign_processors": 0.02}))) == {}


def test_a_result_that_differs_is_named():
    good = {"check": {"difference": 1e-12, "tolerance": 1e-9}}
    bad = {"check": {"difference": math.inf, "tolerance": 1e-9}}
    sides = {"tenon": tenon(**good), "peers": {"cotengra-numpy": peer(1.0, **bad)}}
    wrong = report.mismatches(entry(**sides))
    assert wrong == ["net float64: cotengra-numpy differs from the reference by inf, allowed is "
                     "1e-09"]
    assert not report.mismatches(entry(tenon=None))


def test_missing_environment_of_the_peers_fails(tmp_path):
    with pytest.raises(corpus.BenchError, match="tests/bench/setup.sh"):
        peers.require(tmp_path / "python", ["cotengra-numpy"], 2)


def test_missing_peer_fails_and_is_named(tmp_path):
    # An interpreter that sees no installed package but NumPy and an empty cotengra.
    (tmp_path / "cotengra.py").write_text("__version__ = '0'")
    (tmp_path / "threadpoolctl.py").write_text(
        "__version__ = '0'\ndef threadpool_info(): return []")
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} \"$@\"\n")
    python.chmod(0o755)
    assert peers.require(python, ["cotengra-numpy"], 2)["versions"]["cotengra"] == "0"
    with pytest.raises(corpus.BenchError, match="torch is missing .no torch here.*setup.sh"):
        peers.require(python, ["cotengra-numpy", "cotengra-torch"], 2)


def run_bench(*arguments):
    return subprocess.run([sys.executable, str(BENCH / "run.py"), *arguments], capture_output=True,
                          text=True, timeout=60)


def test_the_command_fails_when_a_peer_is_missing(tmp_path):
    answer = run_bench("--no-tenon", "--only", "ml_bilinear", "--networks", str(NETWORKS),
                       "--python", str(tmp_path / "nothing"))
    assert answer.returncode == 2 and "run tests/bench/setup.sh" in answer.stderr


@pytest.mark.parametrize("arguments,message", [
    (["--only", "nothing"], "is named nothing"),
    (["--server-binary", "/nothing"], "no server: /nothing does not exist"),
    (["--profile-binary", "/nothing"], "/nothing does not exist"),
    (["--peers", "numpy"], "unknown: numpy"),
    (["--dtypes", "float16"], "unknown: float16"),
])
def test_what_is_missing_is_said_at_once(arguments, message):
    common = ["--networks", str(NETWORKS)]
    if "--peers" not in arguments:
        common += ["--peers", "none"]
    answer = run_bench(*common, *arguments)
    assert answer.returncode == 2 and message in answer.stderr, answer.stderr


def test_the_command_prints_an_earlier_run_and_fails_on_a_wrong_result(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"runs": [], "networks": [entry()]}))
    answer = run_bench("--from", str(path), "--markdown")
    assert (answer.returncode, answer.stdout) == (0, report.table([entry()]) + "\n")
    wrong = entry(tenon=tenon(check={"difference": 1.0, "tolerance": 1e-9}))
    path.write_text(json.dumps({"runs": [], "networks": [wrong]}))
    answer = run_bench("--from", str(path))
    assert answer.returncode == 1 and "tenon differs from the reference" in answer.stderr


def test_operands_are_those_of_the_corpus():
    # The test vector of the corpus: the numbers of tensor 0 under seed 1000, before scaling.
    network = corpus.Network("", "", "float64", [["a", "b"]], [], {"a": 2, "b": 2}, [], [], 1, 0,
                             1000, [1.0])
    expected = [-0.017791864035785032, -0.9720520441249609, -0.36408564773800745,
                -0.18025082370136936]
    np.testing.assert_array_equal(corpus.make_operand(network, 0, "float64").ravel(), expected)
    pairs = corpus.make_operand(network, 0, "complex128").ravel()[:2] * math.sqrt(2)
    np.testing.assert_allclose(pairs, [complex(*expected[:2]), complex(*expected[2:])], rtol=1e-15)


def test_operands_do_not_depend_on_the_generators_chunks(monkeypatch):
    network = corpus.read_network(NETWORKS / "ising3d_5x5x5.json")
    whole = corpus.make_operand(network, 7, "complex64")
    monkeypatch.setattr(corpus, "_CHUNK", 3)
    np.testing.assert_array_equal(corpus.make_operand(network, 7, "complex64"), whole)


def test_comparison_with_the_reference():
    real = {"float64": {"shape": [2], "max_abs": 2.0, "values": [1.0, -2.0]}}
    assert corpus.compare(real, np.array([1.0, -2.5])) == (0.25, 1e-9)
    assert corpus.compare(real, np.array([1.0, np.nan], "float32")) == (math.inf, 1e-3)
    assert corpus.compare(real, np.array([1.0]))[0] == math.inf
    sampled = {"complex128": {"shape": [2, 2], "max_abs": 1.0, "sample_positions": [3],
                              "sample_values": [[0.0, 1.0]]}}
    assert corpus.compare(sampled, np.array([[9, 9], [9, 1j]]))[0] == 0.0
    assert corpus.has_reference(real, "float32") and not corpus.has_reference(real, "complex64")


def test_only_networks_to_execute_are_taken():
    taken = corpus.exec_networks(NETWORKS)
    assert "ml_bilinear" in {network.name for network in taken}
    assert "ising3d_6x6x6" not in {network.name for network in taken}
    assert [n.name for n in corpus.exec_networks(NETWORKS, ["ml_tucker4"])] == ["ml_tucker4"]


def test_measured_processes_do_not_inherit_settings_of_the_shell(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    env = peers.environment(2)
    assert env["OMP_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "2"
    assert "OPENBLAS_CORETYPE" not in env
