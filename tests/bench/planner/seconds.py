#!/usr/bin/env python3
"""How well seconds are predicted, and what choosing plans by them gains.

  ninja -C build planner_seconds
  tests/bench/planner/seconds.py --binary build/tests/bench/planner_seconds --output seconds.json

Runs every network of the corpus along its own path, along the best path by flops and along the best
one by predicted seconds, and compares the shortest times of each with the shortest predicted. Exits with 1 when a target is missed.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORST, MEAN = 1.5, 1.25  # predicted over measured, either way
NOISE = 1.05  # two measurements of one plan differ by this much


def networks(folder, only):
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        if isinstance(data, dict) and data.get("role") == "exec":
            if not only or data["name"] in only:
                yield path


def error(plan):
    """By which factor a prediction is off, either way."""
    ratio = plan["predicted_seconds"] / plan["seconds"]
    return max(ratio, 1 / ratio)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(rows):
    result = {"worst_error": max(error(row["given"]) for row in rows),
              "mean_error": geometric_mean([error(row["given"]) for row in rows])}
    chosen = [row for row in rows if "seconds" in row]
    if chosen:
        gains = [row["seconds"]["seconds"] / row["flops"]["seconds"] for row in chosen]
        result["worst_seconds_over_flops"] = max(gains)
        result["mean_seconds_over_flops"] = geometric_mean(gains)
    return result


def print_row(row):
    ratio = row["given"]["predicted_seconds"] / row["given"]["seconds"]
    text = (f"{row['name']:28s} {row['threads']} threads: {row['given']['seconds']:.4g} s, "
            f"predicted / measured {ratio:.2f}")
    if "seconds" in row:
        text += (f"; by flops {row['flops']['seconds']:.4g} s, by seconds "
                 f"{row['seconds']['seconds']:.4g} s "
                 f"({row['seconds']['seconds'] / row['flops']['seconds']:.2f})")
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", type=pathlib.Path,
                        default=ROOT / "build/tests/bench/planner_seconds")
    parser.add_argument("--networks", type=pathlib.Path,
                        default=ROOT.parent / "shared/networks")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--search", type=float, default=2, help="seconds of each search; 0: none")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = []
    for threads in arguments.threads:
        for path in networks(arguments.networks, arguments.only):
            command = [arguments.binary, "--threads", threads, "--repeat", arguments.repeat,
                       "--search", arguments.search, path]
            line = subprocess.run(list(map(str, command)), check=True, capture_output=True,
                                  text=True).stdout
            rows.append(json.loads(line))
            print_row(rows[-1])
    figures = summary(rows)
    print(json.dumps(figures, indent=2))
    if arguments.output:
        arguments.output.write_text(json.dumps({"rows": rows, "summary": figures}, indent=1) + "\n")
    missed = (figures["worst_error"] > WORST or figures["mean_error"] > MEAN
              or figures.get("worst_seconds_over_flops", 0) > NOISE
              or figures.get("mean_seconds_over_flops", 0) > 1)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
