#!/usr/bin/python3
"""Measures Tenon's projection measures against zadu and scikit-learn, in one run.

Tenon is called through generated stubs over a Unix socket: the data set is sent with every call and
what is built of it is built anew, as zadu's constructor does; seconds are the client's, from the
call to the summary. A server of its own holds the data set when its memory is taken, which is what
its resident set grows by above its inputs. zadu's seconds are its constructor and one measure();
scikit-learn's those of two calls of trustworthiness. "further" is what another projection costs.
Peers run in fresh processes with each number of BLAS and OpenMP threads of --peer-threads; the
quickest counts. Each side takes the median of several calls, warm, and the quickest of --rounds;
a side that other work disturbed is measured again, --retries times. Scores are compared in the same
run: 1e-9 relative, or the spread over seeds where they are random.

Further lines: "further" (each further projection against the first), "stream" (many projections of
the digits against iter_measure_many), "large" (100 000 rows in a small budget, rows checked by
definition, 1 and 2 threads), "small" (200 rows, five measures, inside the server).

    tests/bench/setup.sh
    cmake -S . -B build -DTENON_TESTS=ON && ninja -C build tenond measures_distances
    tests/bench/measures/run.py --rounds 2 --output results.json

A missing peer or a score that differs fails the run; a target that is not met is said.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import shlex
import subprocess
import sys

import cases

sys.path.insert(1, str(cases.ROOT / "tests" / "bench" / "contraction"))
import machine  # noqa: E402
import timing  # noqa: E402
import verdict  # noqa: E402
import zadu_peers  # noqa: E402
from arguments import names, positive  # noqa: E402
from corpus import BenchError  # noqa: E402
from peers import environment  # noqa: E402

_STREAM_TARGET, _STREAM_COUNT = 25, 200
_LARGE_ROWS, _LARGE_BUDGET, _SCALING_TARGET = 100_000, 512 * cases.MIB, 1.8
_SMALL_MILLISECONDS = 3
# Announced projections (None: not) and the largest further ÷ first.
_FURTHER = {"with the rank table": (200, 0.5), "without": (None, 0.9)}
_QUICK = {"rows": 300, "rounds": 1, "repeat": 2, "cap": 1.0, "count": 4, "further": 1,
          "retries": 0, "sample": 0}


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", type=names, default=[], metavar="NAMES",
        help="these cases and lines, comma between: " + ", ".join(all_lines()))
    add("--rows", type=positive, help="rows of every case; targets are not judged then")
    add("--threads", type=positive, default=2, help="of Tenon (default: 2)")
    add("--peer-threads", type=lambda text: [positive(part) for part in names(text)],
        default=[1, 2], metavar="N,...", help="BLAS and OpenMP threads of the peers (default: 1,2)")
    add("--rounds", type=positive, default=1,
        help="times that the sides take turns; the quickest counts (default: 1)")
    add("--retries", type=int, default=2,
        help="times that a side is measured again because other work took more than "
             f"{timing.DISTURBANCE} processors meanwhile (default: 2)")
    add("--repeat", type=positive, help="calls (default: 25 below 50 ms, 7 below 0.7 s, else 3)")
    add("--cap", type=float, default=20, help="seconds of calls of one side (default: 20)")
    add("--further", type=positive, default=4, help="further projections (default: 4)")
    add("--count", type=positive, default=_STREAM_COUNT, help="projections of the stream")
    add("--sample", type=int, default=20,
        help="projections of the stream that a peer is timed on and scaled from; 0: all "
             "(default: 20)")
    add("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    add("--no-peers", action="store_true", help="measure Tenon alone")
    add("--server-binary", type=pathlib.Path,
        default=cases.ROOT / "build" / "server" / "tenond")
    add("--distances-binary", type=pathlib.Path,
        default=cases.ROOT / "build" / "tests" / "bench" / "measures_distances")
    add("--python", type=pathlib.Path,
        default=cases.ROOT / "tests" / "bench" / ".venv" / "bin" / "python",
        help="interpreter that has the peers (default: that of tests/bench/setup.sh)")
    add("--output", type=pathlib.Path, metavar="JSON", help="write every figure there")
    add("--from", dest="source", type=pathlib.Path, metavar="JSON",
        help="measure nothing, print what an earlier --output says")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(_QUICK)
    for name in set(options.only) - set(all_lines()):
        parser.error(f"unknown: {name}; there are {', '.join(all_lines())}")
    options.judged = options.rows is None
    return options


def all_lines():
    return [case.name for case in cases.CASES] + list(_LINES)


def thread_count(threads):
    return f"{threads} thread" + "s" * (threads > 1)


def interleave(sides, options):
    rounds = timing.interleave(sides, options.rounds, options.retries)
    return {name: timing.best_round(figures) for name, figures in rounds.items()}


def peer_sides(options, libraries, call):
    """Every library with every number of threads; `call` takes both."""
    if options.no_peers:
        return {}
    return {f"{library}, {thread_count(threads)}": functools.partial(call, library, threads)
            for library in libraries for threads in options.peer_threads}


def distances_alone(options, case):
    """What measures_distances says about both distance matrices."""
    if not options.distances_binary.exists():
        raise BenchError(f"{options.distances_binary} does not exist; build measures_distances")
    command = [str(options.distances_binary), "--rows", str(case.rows), "--columns",
               str(case.columns), "--threads", str(options.threads)]
    answer = subprocess.run(command, capture_output=True, text=True,
                            env=environment(options.threads))
    if answer.returncode != 0:
        raise BenchError(f"{command[0]}: {answer.stderr.strip()}")
    return {**json.loads(answer.stdout), "over": False}


def measure_case(options, service, case):
    from sides import run_case
    if options.rows:
        case = dataclasses.replace(case, rows=options.rows)
    ours = {way: functools.partial(run_case, service, options, case, way) for way in case.tenon}
    peers = peer_sides(options, case.peers, lambda library, threads: zadu_peers.run_case(
        options, library, threads, case))
    floor = {"floor": lambda: distances_alone(options, case)} if case.floor else {}
    best = interleave({**ours, **floor, **peers}, options)
    return {"kind": "case", "name": case.name, "rows": case.rows, "measures": case.measures,
            "tenon": [{**best[way], "name": way.name, "ratio": way.ratio,
                       "memory_limit": way.memory_limit} for way in case.tenon],
            "peers": {name: best[name] for name in peers}, "floor": best.get("floor"),
            "floor_target": case.floor}


def measure_further(options, service):
    from sides import run_further
    rows = options.rows or 5000
    best = interleave({name: functools.partial(run_further, service, options, rows, expected)
                       for name, (expected, _) in _FURTHER.items()}, options)
    return {"kind": "further", "rows": rows,
            "tenon": [{**best[name], "name": name, "target": target}
                      for name, (_, target) in _FURTHER.items()]}


def measure_stream(options, service):
    from sides import run_stream
    ours = {"tenon": functools.partial(run_stream, service, options, cases.SUITE, options.count)}
    peers = peer_sides(options, ("zadu",), lambda _, threads: zadu_peers.run_stream(
        options, threads, cases.SUITE, options.count))
    best = interleave({**ours, **peers}, options)
    return {"kind": "stream", "count": options.count, "target": _STREAM_TARGET,
            "tenon": [best["tenon"]], "peers": {name: best[name] for name in peers}}


def measure_large(options, service):
    from sides import run_large
    rows = options.rows or _LARGE_ROWS
    best = interleave({threads: functools.partial(run_large, service, options, rows, threads,
                                                  _LARGE_BUDGET) for threads in (1, 2)}, options)
    return {"kind": "large", "rows": rows, "budget": _LARGE_BUDGET, "target": _SCALING_TARGET,
            "tenon": [{**best[threads], "name": thread_count(threads)} for threads in (1, 2)]}


def measure_small(options, service):
    from sides import run_small
    best = interleave({"tenon": functools.partial(run_small, service, options)}, options)
    return {"kind": "small", "rows": 200, "target": _SMALL_MILLISECONDS, "tenon": [best["tenon"]]}


_LINES = {"further": measure_further, "stream": measure_stream, "large": measure_large,
          "small": measure_small}


def run_all(options):
    """Measures and saves after every line. Returns the results."""
    from measure_server import Service  # needs grpc
    run = {"date": machine.date(), "commit": machine.commit(), "threads": options.threads,
           "peer_threads": options.peer_threads, "rounds": options.rounds,
           "command": shlex.join(["run.py", *sys.argv[1:]]), "machine": machine.describe()}
    if not options.no_peers:
        run["peers"] = zadu_peers.require(options.python, max(options.peer_threads))
    results = {"run": run, "entries": []}
    work = {case.name: functools.partial(measure_case, case=case) for case in cases.CASES}
    work.update(_LINES)
    with Service(options.server_binary) as service:
        for name in options.only or work:
            entry = {"name": name, "judged": options.judged, **work[name](options, service)}
            results["entries"].append(entry)
            if options.output:
                options.output.write_text(json.dumps(results, indent=1) + "\n")
            print(verdict.checklist([entry]), file=sys.stderr, flush=True)
    return results


def main():
    options = parse(sys.argv[1:])
    try:
        results = json.loads(options.source.read_text()) if options.source else run_all(options)
    except BenchError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    entries = results["entries"]
    print(verdict.table(entries))
    print(verdict.checklist(entries))
    wrong = verdict.mismatches(entries)
    for text in wrong:
        print(f"run.py: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
