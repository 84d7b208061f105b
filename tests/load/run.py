#!/usr/bin/env python3
"""Small calls and transfers of tenond beside those of a bare echo server, in one run.

Starts both servers, lets load_driver ask them in turns, repeats that, and keeps everything as JSON.
Exits with 1 when a median ratio misses its target by more than --slack.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from facts import machine_facts, server_facts  # noqa: E402
from tenond import Tenond, generate_stubs  # noqa: E402

# Section, figure, target, and whether more is better.
TARGETS = [
    ("latency", "once_p50_ratio", 1.3, False),
    ("latency", "stream_p50_ratio", 1.3, False),
    ("latency", "once_p99_ratio", 1.5, False),
    ("latency", "stream_p99_ratio", 1.5, False),
    ("throughput", "once_ratio", 0.7, True),
    ("throughput", "stream_ratio", 0.7, True),
    ("transfer", "upload_ratio", 0.8, True),
    ("transfer", "download_ratio", 0.8, True),
]


class Echo:
    """The bare echo server; it ends with its input."""

    def __init__(self, binary, folder):
        port_file = pathlib.Path(folder) / "echo_port"
        self.process = subprocess.Popen([binary, port_file], stdin=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while not port_file.exists() or not port_file.read_text().endswith("\n"):
            assert self.process.poll() is None, "echo_server exited"
            assert time.monotonic() < deadline, "echo_server did not bind"
            time.sleep(0.02)
        self.address = port_file.read_text().strip()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def summarize(runs):
    """[section, figure, median, worst, target] of every figure that was measured."""
    rows = []
    for section, figure, target, more_is_better in TARGETS:
        values = [run[section][figure] for run in runs if figure in run.get(section, {})]
        if not values:
            continue
        worst = min(values) if more_is_better else max(values)
        rows.append({"section": section, "figure": figure, "median": statistics.median(values),
                     "worst": worst, "target": target, "more_is_better": more_is_better})
    return rows


def misses(row, slack):
    if row["more_is_better"]:
        return row["median"] * slack < row["target"]
    return row["median"] > row["target"] * slack


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.environ.get("TENON_BUILD_DIR", ROOT / "build"))
    parser.add_argument("--output", help="JSON file of the result")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--slack", type=float, default=1.0,
                        help="factor that targets may be missed by")
    parser.add_argument("--tenond", action="append", default=[], metavar="FLAG",
                        help="a flag for tenond, such as --tenond=--log_level=warning")
    parser.add_argument("driver", nargs="*", help="flags for load_driver, after --")
    arguments = parser.parse_args()
    build = pathlib.Path(arguments.build)
    with tempfile.TemporaryDirectory() as folder:
        stubs_folder = pathlib.Path(folder) / "stubs"
        stubs_folder.mkdir()
        stubs = generate_stubs(stubs_folder)
        tenond = Tenond(build / "server" / "tenond", folder, *arguments.tenond)
        echo = Echo(build / "tests" / "load" / "echo_server", folder)
        try:
            facts = server_facts(tenond.wait_until_ready(stubs))
            runs = []
            for _ in range(arguments.repeat):
                command = [build / "tests" / "load" / "load_driver",
                           f"--tenon={tenond.address}", f"--echo={echo.address}",
                           f"--tenon_pid={tenond.process.pid}", f"--echo_pid={echo.process.pid}",
                           *arguments.driver]
                runs.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE,
                                                      timeout=570).stdout))
        finally:
            echo.stop()
            exit_code = tenond.stop()
    assert exit_code == 0, f"tenond exited with {exit_code}"
    summary = summarize(runs)
    result = {
        "what": "tenond beside a bare callback echo server",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine_facts(),
        "server": facts, "tenond_flags": arguments.tenond, "driver_flags": arguments.driver,
        "summary": summary, "runs": runs,
    }
    if arguments.output:
        pathlib.Path(arguments.output).write_text(json.dumps(result, indent=1) + "\n")
    missed = False
    for row in summary:
        miss = misses(row, arguments.slack)
        missed = missed or miss
        sign = ">=" if row["more_is_better"] else "<="
        print(f"{row['section'] + ' ' + row['figure']:32} {row['median']:6.2f}  "
              f"(worst {row['worst']:.2f}, target {sign} {row['target']})"
              f"{'  MISSED' if miss else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
