"""The judgements of the scripts in tests/load, on figures whose answer is known."""

import argparse
import importlib.util
import random
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "load"))  # as where they run by themselves

MIB = 1 << 20


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "load" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = dont_write
    return module


LIMITS = argparse.Namespace(max_rise_mib=16, max_in_use_rise_mib=1, max_handles=3)


def samples(leak_mib_per_second=0.0, leak_bytes_per_second=0, more_files=0, peaks=True):
    """400 seconds of a process of 100 MiB whose memory jitters, with peaks of 200 MiB."""
    noise = random.Random(1)
    return [{"seconds": i, "threads": 9,
             "in_use": 8 * MIB + noise.randint(0, 4 * MIB) + i * leak_bytes_per_second, "files": 20 + more_files * i // 400,
             "resident": int(100 * MIB + noise.randint(0, 2 * MIB) + i * leak_mib_per_second * MIB
                             + (200 * MIB if peaks and i % 50 == 0 else 0))}
            for i in range(400)]


def test_peaks_are_no_leak():
    figures, wrong = load("soak").judge(samples(), LIMITS)
    assert wrong == []
    assert abs(figures["rise_mib"]) < 1
    assert figures["largest_resident_mib"] > 300


def test_a_slow_leak_is_found_among_peaks():
    figures, wrong = load("soak").judge(samples(leak_mib_per_second=0.1), LIMITS)
    assert figures["slope_mib_per_hour"] == pytest.approx(360, rel=0.02)
    assert len(wrong) == 1 and "memory rose by" in wrong[0]


def test_a_leak_too_small_for_pages_is_found_in_the_allocator():
    figures, wrong = load("soak").judge(samples(leak_bytes_per_second=5000), LIMITS)
    assert figures["in_use_rise_mib"] == pytest.approx(1.9, rel=0.15)
    assert len(wrong) == 1 and "the allocator" in wrong[0]


def test_files_that_stay_open_are_found():
    _, wrong = load("soak").judge(samples(more_files=8), LIMITS)
    assert len(wrong) == 1 and wrong[0].startswith("files grew by")


def test_theil_sen_is_the_median_of_all_slopes():
    soak = load("soak")
    assert soak.theil_sen([0, 1, 2, 3], [0, 2, 4, 6]) == 2
    assert soak.theil_sen([0, 1, 2, 3], [0, 2, 4, 600]) == 101  # of 2, 2, 2, 200, 299 and 596
    assert soak.least_squares([0, 1, 2, 3], [1, 3, 5, 7]) == pytest.approx(2)


def test_targets_are_judged_by_the_median():
    run = load("run")
    runs = [{"latency": {"once_p50_ratio": r}, "throughput": {"once_ratio": t}}
            for r, t in [(1.2, 0.9), (9.0, 0.1), (1.25, 0.8)]]
    rows = {row["figure"]: row for row in run.summarize(runs)}
    assert set(rows) == {"once_p50_ratio", "once_ratio"}
    assert rows["once_p50_ratio"]["median"] == 1.25 and rows["once_p50_ratio"]["worst"] == 9.0
    assert rows["once_ratio"]["median"] == 0.8 and rows["once_ratio"]["worst"] == 0.1
    assert not any(run.misses(row, 1) for row in rows.values())
    rows["once_p50_ratio"]["median"] = 1.4
    rows["once_ratio"]["median"] = 0.6
    assert all(run.misses(row, 1) for row in rows.values())
    assert not any(run.misses(row, 2) for row in rows.values())
