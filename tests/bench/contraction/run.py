#!/usr/bin/python3
"""Measures Tenon's contractions against its peers, network by network, in one run.

For every network of the corpus that is meant to be executed, Tenon and its peers contract the same
operands along the same path, with the same slices and threads, one right after the other:

  Tenon             a server of its own, operands stored on it; after one call that is not counted,
                    the median of input_prepare + setup + execution seconds of its reports; end to
                    end at the client, and the share of that outside the engine, in further columns
  cotengra-numpy    cotengra's executor on NumPy (OpenBLAS), cotengra-torch on torch;
  cotengra-torch    opt_einsum-numpy along the same path, slices cut and gathered by cotengra.
  opt_einsum-numpy  Each in a fresh process: a cold slice, a warm one, then the median of several
                    contractions. What does not fit --cap is timed on the first slices and scaled
                    ("scaled_from"); what does not end one slice is a lower bound ("over").

With --rounds the sides take turns several times and the quickest round of each counts: other work
on the machine only ever adds time. How much of it there was stands in "load"; a side that was
disturbed is measured again, --retries times.

Ratios are the peer's seconds over Tenon's. The GEMM peak is the best rate of a large matrix product
of NumPy, torch and, if given, --profile-binary, in the same run. Peak memory is what the resident
set of a fresh process that holds its inputs grows by. Results are compared with reference.json; one
that differs makes the run fail, as does a missing peer (tests/bench/setup.sh installs them).

    tests/bench/setup.sh
    tests/bench/contraction/run.py --only ml_bilinear,ising3d_5x5x5 --output results.json
    tests/bench/contraction/run.py --from results.json --markdown
"""

import argparse
import functools
import json
import pathlib
import shlex
import subprocess
import sys

import machine
import peers
import report
import timing
from arguments import names, positive
from corpus import DTYPES, BenchError, exec_networks, read_reference

ROOT = machine.ROOT


def default_networks():
    shared = ROOT.parent / "shared" / "networks"
    return shared if shared.is_dir() else ROOT / "tests" / "data" / "networks"


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--networks", type=pathlib.Path, default=default_networks(), metavar="DIR",
        help="network files and reference.json (default: the shared corpus beside the repository, "
             "else tests/data/networks)")
    add("--only", type=names, default=[], metavar="NAMES", help="these networks, comma between")
    add("--dtypes", type=names, default=[], metavar="NAMES",
        help='element types, or "all" (default: each network\'s own)')
    add("--threads", type=positive, default=2, help="of Tenon and of every peer (default: 2)")
    add("--peers", type=names, default=list(peers.PEERS), metavar="NAMES",
        help="which peers, comma between, or none (default: all)")
    add("--no-tenon", action="store_true", help="measure the peers alone")
    add("--server-binary", type=pathlib.Path, default=ROOT / "build" / "server" / "tenond")
    add("--profile-binary", type=pathlib.Path, metavar="FILE",
        help="contraction_profile of the build; adds the machine's floor")
    add("--python", type=pathlib.Path, default=ROOT / "tests" / "bench" / ".venv" / "bin" /
        "python", help="interpreter that has the peers (default: that of tests/bench/setup.sh)")
    add("--repeat", type=positive, help="repetitions (default: 25 below 50 ms, 7 below 0.7 s, else 3)")
    add("--rounds", type=positive, default=1,
        help="times that Tenon and its peers take turns; the quickest counts (default: 1)")
    add("--retries", type=int, default=2,
        help="times that a side is measured again because other work took more than "
             f"{timing.DISTURBANCE} processors meanwhile (default: 2)")
    add("--cap", type=float, default=40,
        help="seconds for one network on one peer in one round (default: 40)")
    add("--output", type=pathlib.Path, metavar="JSON", help="write every figure there")
    add("--append", action="store_true",
        help="keep the networks that --output already has; measured ones are replaced")
    add("--from", dest="source", type=pathlib.Path, metavar="JSON",
        help="measure nothing, print what an earlier --output says")
    add("--markdown", action="store_true", help="print the tables as Markdown alone")
    options = parser.parse_args(arguments)
    options.peers = [] if options.peers == ["none"] else options.peers
    options.dtypes = list(DTYPES) if options.dtypes == ["all"] else options.dtypes
    for given, known in ((options.peers, peers.PEERS), (options.dtypes, DTYPES)):
        for name in set(given) - set(known):
            parser.error(f"unknown: {name}; there are {', '.join(known)}")
    return options


def measure_floor(binary, network, dtype, threads):
    """What contraction_profile says about a network: floor_seconds, gemm_peak_gflops and more."""
    if not binary.exists():
        raise BenchError(f"{binary} does not exist; build the target contraction_profile")
    command = [str(binary), "--threads", str(threads), "--dtype", dtype, "--repeat", "1",
               network.path]
    answer = subprocess.run(command, capture_output=True, text=True,
                            env=peers.environment(threads))
    if answer.returncode != 0:
        raise BenchError(f"{binary.name} {network.name}: {answer.stderr.strip()}")
    return json.loads(answer.stdout)


def measure(network, dtype, options, service, gemm):
    """Everything about one network: the entry of the JSON."""
    reference = read_reference(options.networks, network.name)
    entry = {"name": network.name, "dtype": dtype, "nslices": network.nslices,
             "steps": len(network.path_ssa), "real_flops": network.real_flops(dtype),
             "input_bytes": network.input_bytes(dtype),
             "gemm_gflops": {library: rates[dtype] for library, rates in gemm.items()}}
    sides = {}
    if service:
        sides["tenon"] = lambda: service.measure(network, dtype, reference, options.cap,
                                                 options.repeat)
    for peer in options.peers:
        sides[peer] = functools.partial(peers.run, options.python, peer, network, dtype, reference,
                                        options.threads, options.cap, options.repeat)
    rounds = timing.interleave(sides, options.rounds, options.retries)
    best = {name: timing.best_round(figures) for name, figures in rounds.items()}
    entry["tenon"] = best.pop("tenon", None)
    entry["peers"] = best
    if options.profile_binary:
        entry["floor"] = measure_floor(options.profile_binary, network, dtype, options.threads)
        entry["gemm_gflops"]["profile"] = entry["floor"]["gemm_peak_gflops"]
    return entry


def load(path):
    return json.loads(path.read_text()) if path and path.exists() else {"runs": [], "networks": []}


def save(path, results):
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n")


def run_all(options):
    """Measures and saves after every network. Returns the results."""
    networks = exec_networks(options.networks, options.only)
    work = [(network, dtype) for network in networks for dtype in options.dtypes or [network.dtype]]
    results = load(options.output if options.append else None)
    run = {"date": machine.date(), "commit": machine.commit(), "threads": options.threads,
           "command": shlex.join(["run.py", *sys.argv[1:]]), "cap": options.cap,
           "machine": machine.describe(), "gemm_gflops": {}}
    if options.profile_binary and not options.profile_binary.exists():
        raise BenchError(f"{options.profile_binary} does not exist; build contraction_profile")
    if options.peers:
        run["peers"] = peers.require(options.python, options.peers, options.threads)
        run["gemm_gflops"] = peers.gemm_peaks(options.python, options.peers,
                                              {dtype for _, dtype in work}, options.threads,
                                              options.retries)
    number = len(results["runs"])
    results["runs"].append(run)

    def measure_with(service):
        for network, dtype in work:
            entry = measure(network, dtype, options, service, run["gemm_gflops"])
            entry["run"] = number
            results["networks"] = [other for other in results["networks"]
                                   if (other["name"], other["dtype"]) != (network.name, dtype)]
            results["networks"].append(entry)
            results["networks"].sort(key=lambda e: (e["name"], DTYPES.index(e["dtype"])))
            save(options.output, results)
            print(line(entry), file=sys.stderr, flush=True)

    if options.no_tenon:
        measure_with(None)
    else:
        from service import Service  # needs grpc, which the peers alone do not
        with Service(options.server_binary, options.threads) as service:
            measure_with(service)
    return results


def line(entry):
    """One network, as it is done."""
    derived = report.derive(entry)
    parts = [f"{entry['name']} {entry['dtype']}:"]
    if entry["tenon"]:
        over = "> " if entry["tenon"]["over"] else ""
        parts.append(f"tenon {over}{report.number(entry['tenon']['seconds'])} s")
    for name, peer in entry["peers"].items():
        parts.append(f"{name} {'> ' if peer['over'] else ''}{report.number(peer['seconds'])} s")
    if derived["fastest_ratio"]:
        parts.append(f"(fastest ÷ tenon {report.number(derived['fastest_ratio'])})")
    for name, processors in report.disturbed(entry).items():
        parts.append(f"[{name}: other work took {processors:.2f} processors]")
    return " ".join(parts)


def main():
    options = parse(sys.argv[1:])
    try:
        results = load(options.source) if options.source else run_all(options)
    except BenchError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    entries = results["networks"]
    with_tenon = any(entry["tenon"] for entry in entries)
    print(report.table(entries) if with_tenon else report.peer_table(entries))
    if with_tenon and not options.markdown:
        print(report.verdict(entries))
    wrong = [text for entry in entries for text in report.mismatches(entry)]
    for text in wrong:
        print(f"run.py: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
