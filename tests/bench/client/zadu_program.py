#!/usr/bin/env python3
"""The same program under zadu and under tenon: seconds side by side, as JSON.

Every run is a process of its own: the imports, the runner, its projections as a list, then as a
stream, and one projection more. What comes first is slower (zadu compiles, tenon starts its private
server): all of it is done once on a small data set, which counts as "imports_and_first_use".

    TENON_TENOND=build/server/tenond tests/bench/client/zadu_program.py

needs an environment with zadu, and protoc with grpc_python_plugin for the stubs.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))

MEASURES = [("tnc", {"k": 20}), ("mrre", {"k": 20}), ("lcmc", {"k": 20}), ("nh", {"k": 20}),
            ("nd", {"k": 20}), ("dsc", {}), ("dtm", {}), ("kl_div", {}), ("topo", {"k": 20}),
            ("stress", {}), ("sn_stress", {}), ("pr", {}), ("srho", {})]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--projections", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="medians are printed")
    parser.add_argument("--run", choices=("zadu", "tenon"), help=argparse.SUPPRESS)
    return parser.parse_args()


def data(rows, columns, projections):
    import numpy as np
    numbers = np.random.default_rng(1)
    hd = numbers.standard_normal((rows, columns))
    lds = [hd[:, :2] + noise * numbers.standard_normal((rows, 2))
           for noise in np.linspace(0, 2, projections)]
    return hd, lds, np.arange(rows) % 10


def program(package, hd, lds, labels):
    """Seconds of each part, and the scores."""
    specs = [{"id": name, "params": params} for name, params in MEASURES]
    seconds, start = {}, time.perf_counter()

    def lap(name):
        nonlocal start
        now = time.perf_counter()
        seconds[name], start = now - start, now

    runner = package.ZADU(specs, hd)
    lap("runner")
    scores = runner.measure_many(lds, labels)
    lap("measure_many")
    for _ in runner.iter_measure_many(iter(lds), labels):
        pass
    lap("iter_measure_many")
    runner.measure(lds[0], labels)
    lap("measure")
    return seconds, [list(values.values()) for item in scores for values in item]


def run_one(options):
    start = time.perf_counter()
    package = __import__(options.run)
    program(package, *data(100, options.columns, 2))
    first = time.perf_counter() - start
    seconds, scores = program(package, *data(options.rows, options.columns, options.projections))
    print(json.dumps({"seconds": {"imports_and_first_use": first, **seconds}, "scores": scores}))


def run_in_process(name, folder):
    output = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--run", name], check=True,
                            stdout=subprocess.PIPE, text=True, env={
                                **os.environ, "PYTHONPATH": str(folder)}).stdout
    return json.loads(output)


def median(results, part):
    return round(statistics.median(result["seconds"][part] for result in results), 4)


def largest_difference(mine, theirs):
    """Of scores, relative to their size where that is above 1."""
    return max(abs(a - b) / max(1, abs(b)) for one, other in zip(mine, theirs, strict=True)
               for a, b in zip(one, other, strict=True))


def main():
    options = arguments()
    if options.run:
        return run_one(options)
    from conftest import make_package
    with tempfile.TemporaryDirectory() as folder:
        make_package(pathlib.Path(folder))
        runs = {name: [] for name in ("zadu", "tenon")}
        for _ in range(options.rounds):
            for name, results in runs.items():
                results.append(run_in_process(name, folder))
    seconds = {name: {part: median(results, part) for part in results[0]["seconds"]}
               for name, results in runs.items()}
    print(json.dumps({
        "rows": options.rows, "columns": options.columns, "projections": options.projections,
        "measures": [name for name, _ in MEASURES], "rounds": options.rounds, "seconds": seconds,
        "times": {part: round(seconds["zadu"][part] / seconds["tenon"][part], 1)
                  for part in seconds["zadu"]},
        "largest_difference": largest_difference(runs["tenon"][0]["scores"],
                                                 runs["zadu"][0]["scores"])}, indent=1))
    return None


if __name__ == "__main__":
    main()
