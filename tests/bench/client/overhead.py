#!/usr/bin/env python3
"""What the Python client takes beside the C++ one, at the same server, as JSON.

    TENON_TENOND=build/server/tenond tests/bench/client/overhead.py --tenon build/client/cpp/tenon

Seconds of one small call (``ab,bc->ac``, 8 x 8) that is new each time, and on a call that is kept
open; and GB/s of an upload (the sum of a vector) and a download (an outer product) of one size. The
C++ side is ``tenon bench`` with the same work. Clients take turns; medians of all rounds.

Needs protoc with grpc_python_plugin for the stubs.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tenon", default="tenon", help="the command (default: on PATH)")
    parser.add_argument("--bytes", type=int, default=1 << 30, help="of large calls (1 GiB)")
    parser.add_argument("--calls", type=int, default=1000, help="small ones in each round")
    parser.add_argument("--large-calls", type=int, default=3, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def cpp(options, client, *work, requests):
    """Requests as `tenon bench` makes them: seconds of each, and payload a second."""
    answer = subprocess.run([options.tenon, "bench", "--server", client.address, "--warmup", "0.2",
                             "--requests", str(requests), "--json", "-", *work], check=True,
                            capture_output=True, text=True)
    report = json.loads(answer.stdout)
    return report["latency_seconds"]["p50"], report["bytes_per_second"] / 1e9


def median_seconds(call, repeats):
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def small_round(options, client, expression, figures):
    a = np.full((8, 8), 0.5)
    figures["small_new_call_seconds"]["python"].append(
        median_seconds(lambda: client.einsum("ab,bc->ac", a, a), options.calls))
    figures["small_new_call_seconds"]["cpp"].append(cpp(options, client, requests=options.calls)[0])
    figures["small_kept_open_seconds"]["python"].append(
        median_seconds(lambda: expression(a, a), options.calls))
    figures["small_kept_open_seconds"]["cpp"].append(
        cpp(options, client, "--keep-open", requests=options.calls)[0])


def large_round(options, client, figures):
    elements, row = options.bytes // 4, 4096
    vector = np.ones(elements, np.float32)
    left, right = np.ones(elements // row, np.float32), np.ones(row, np.float32)
    work = {"upload": lambda: client.einsum("a->", vector),
            "download": lambda: client.einsum("a,b->ab", left, right)}
    for kind, call in work.items():
        seconds = median_seconds(call, options.large_calls)
        figures[f"{kind}_gb_per_second"]["python"].append(options.bytes / seconds / 1e9)
        figures[f"{kind}_gb_per_second"]["cpp"].append(
            cpp(options, client, "--mix", kind, "--bytes", str(options.bytes),
                requests=options.large_calls)[1])


def measure(options):
    import tenon
    names = ("small_new_call_seconds", "small_kept_open_seconds", "upload_gb_per_second",
             "download_gb_per_second")
    figures = {name: {"python": [], "cpp": []} for name in names}
    with tenon.Client() as client:
        with client.contract_expression("ab,bc->ac", (8, 8), (8, 8)) as expression:
            for _ in range(options.rounds):
                small_round(options, client, expression, figures)
        for _ in range(options.rounds):
            large_round(options, client, figures)
    return {name: {side: statistics.median(values) for side, values in sides.items()}
            for name, sides in figures.items()}


def main():
    options = arguments()
    from conftest import make_package
    with tempfile.TemporaryDirectory() as folder:
        make_package(pathlib.Path(folder))
        sys.path.insert(0, folder)
        figures = measure(options)
    for sides in figures.values():
        sides["python_over_cpp"] = sides["python"] / sides["cpp"]
    print(json.dumps({"bytes": options.bytes, "cores": len(os.sched_getaffinity(0)), **figures},
                     indent=2))


if __name__ == "__main__":
    main()
