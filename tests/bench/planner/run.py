#!/usr/bin/python3
"""Measures Tenon's planner against cotengra and omeco, network by network, in one run.

For every network, number of seconds and objective, each party plans on the same processors, one
right after the other, for intermediates of at most --target elements:

  tenon     `tenon plan` against a server of its own (a fresh one each time: no plan is cached);
            seconds are the command's, from its start to its end
  cotengra  HyperOptimizer with greedy and KaHyPar, cotengrust, optuna, subtree reconfiguration, on
            --threads processes, unsliced; then its winner is sliced, by slice and by
            slice_and_reconfigure at once, and the better one counts
  omeco     TreeSA on --threads threads until the time is over; then TreeSASlicer on its best trees

The peers' start-up is outside their time, and so is the slicing of what they found: both are for
their good, and what they used above the time is in the figures. Every path is judged by the same
cost model (cost.py): "flops" counts multiply-adds, "weighted" adds 64 times what is read and
written. Over all slices, every plan costs what Tenon runs of it: steps that no sliced index changes
once, others as often as reuse between slices leaves to do (executed.py). What all slices cost
without that is kept, too.
Networks of at most 16 tensors are planned for the fewest seconds alone, and a network of 1000
tensors, whose slices no one could count, without a target.

Parts: cells (that comparison), catchup (Tenon in 3 s against cotengra's 60 s), anchors (published
costs of Sycamore-53), micro (greedy, exact and cached plans; --micro-binary prints their seconds).

    tests/bench/setup.sh planner
    tests/bench/planner/run.py --output planner.json --only randreg3_n100_D3 --seconds 2,10
    tests/bench/planner/run.py --output planner.json             # goes on where it stopped
    tests/bench/planner/run.py --from planner.json --markdown

--output keeps what it has: measured again are only what --again names, peers of other versions and
networks that changed. A missing peer, or a plan that is none, fails the run; a requirement that is
not met is said, and with --strict fails it too.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "contraction"))
import machine  # noqa: E402
import executed  # noqa: E402
import networks as corpus_networks  # noqa: E402
import planner_peers  # noqa: E402
import planner_verdict as verdict  # noqa: E402
from arguments import names, positive  # noqa: E402
from corpus import BenchError  # noqa: E402

ROOT = machine.ROOT
PARTS = ("cells", "catchup", "anchors", "micro")
PARTIES = ("tenon", *verdict.PEERS)
SMALL = 16  # tensors: exhausted in the shortest time
_CATCH_UP_SLACK = 0.1  # seconds of start-up that Tenon's limit leaves


def seconds_list(text):
    return [float(part) for part in names(text)]


def elements(text):
    """2^27 or a number; 0: no target."""
    base, _, exponent = text.partition("^")
    return int(base) ** int(exponent) if exponent else int(text)


def default_networks():
    folders = [parent / "shared" / "networks" for parent in ROOT.parents]
    return next(filter(pathlib.Path.is_dir, folders), ROOT / "tests" / "data" / "networks")


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--networks", type=pathlib.Path, default=default_networks(), metavar="DIR",
        help="network files (default: the shared corpus, else tests/data/networks)")
    add("--only", type=names, default=[], metavar="NAMES", help="these networks, comma between")
    add("--seconds", type=seconds_list, default=[2.0, 10.0, 60.0], metavar="S,...",
        help="(default: 2,10,60)")
    add("--objectives", type=names, default=["flops", "weighted"], metavar="NAMES")
    add("--target", type=elements, default=2**27, metavar="N",
        help="elements of an intermediate (default: 2^27; 0: none)")
    add("--parts", type=names, default=list(PARTS), metavar="NAMES",
        help="(default: " + ",".join(PARTS) + ")")
    add("--parties", type=names, default=list(PARTIES), metavar="NAMES",
        help="(default: " + ",".join(PARTIES) + ")")
    add("--again", type=names, default=[], metavar="NAMES",
        help="parties, or anchors and micro, that are measured though --output has them")
    add("--threads", type=positive, default=2, help="of every party (default: 2)")
    add("--seed", type=int, default=1, help="of Tenon (default: 1)")
    add("--methods", type=names, default=list(planner_peers.METHODS), metavar="NAMES",
        help="of cotengra (default: " + ",".join(planner_peers.METHODS) + ")")
    add("--optlib", default="optuna", help="of cotengra (default: optuna)")
    add("--slice-in-trials", action="store_true",
        help="cotengra slices every trial instead of its winner alone (often worse)")
    add("--tenon-binary", type=pathlib.Path,
        default=ROOT / "build" / "client" / "cpp" / "tenon")
    add("--server-binary", type=pathlib.Path, default=ROOT / "build" / "server" / "tenond")
    add("--no-server", action="store_true", help="--tenon-binary needs none: a stand-in")
    add("--micro-binary", type=pathlib.Path,
        default=ROOT / "build" / "tests" / "bench" / "planner_micro")
    add("--repeat", type=positive, default=25, help="of the micro part (default: 25)")
    add("--output", type=pathlib.Path, metavar="JSON", help="write, and keep, every figure there")
    add("--from", dest="source", type=pathlib.Path, metavar="JSON",
        help="measure nothing, print what an earlier --output says")
    add("--markdown", action="store_true", help="print the table alone")
    add("--short", action="store_true", help="print the README's table alone")
    add("--strict", action="store_true", help="exit with 1 when a requirement is not met")
    options = parser.parse_args(arguments)
    again = (*PARTIES, "anchors", "micro")
    for given, known in ((options.parts, PARTS), (options.parties, PARTIES),
                         (options.objectives, ("flops", "weighted")), (options.again, again)):
        for name in set(given) - set(known):
            parser.error(f"unknown: {name}; there are {', '.join(known)}")
    if "tenon" not in options.parties:
        options.parts = [part for part in options.parts if part == "cells"]
    return options


def load(path):
    if path and path.exists():
        return json.loads(path.read_text())
    return {"runs": [], "cells": [], "anchors": [], "micro": {}}


def save(options, results):
    if options.output:
        temporary = options.output.with_suffix(".part")
        temporary.write_text(json.dumps(results, separators=(",", ":")) + "\n")
        temporary.replace(options.output)


def find_cell(results, network, seconds, objective, target):
    """The cell of the results, made if it is not there or its network has changed."""
    key = {"network": network.name, "seconds": seconds, "objective": objective, "target": target}
    for cell in results["cells"]:
        if all(cell[name] == value for name, value in key.items()):
            if cell["digest"] == network.digest():
                return cell
            results["cells"].remove(cell)
            break
    cell = {**key, "digest": network.digest(), "tensors": len(network.inputs), "parties": {}}
    results["cells"].append(cell)
    results["cells"].sort(key=lambda c: (c["network"], c["objective"], c["seconds"]))
    return cell


class Bench:
    """One run of this program: what it measures with, and where it puts it."""

    def __init__(self, options, results, tenon, versions):
        self.options, self.results, self.tenon = options, results, tenon
        self.versions, self.number = versions, len(results["runs"]) - 1
        self.measured = set()

    def _settings(self, party):
        """What a figure depends on besides the cell; a kept one has the same."""
        if party == "tenon":
            return {"threads": self.options.threads, "seed": self.options.seed}
        settings = {"threads": self.options.threads, "versions": self.versions[party]}
        if party == "cotengra":
            settings.update(methods=self.options.methods, optlib=self.options.optlib,
                            slice_in_trials=self.options.slice_in_trials)
        return settings

    def _kept(self, figures, party, key):
        if figures is None or figures["settings"] != self._settings(party):
            return False
        return party not in self.options.again or key in self.measured

    def _run(self, party, network, seconds, target, objective):
        if party == "tenon":
            return self.tenon.run(network, seconds, target, objective)
        options = self.options
        extra = {"methods": options.methods, "optlib": options.optlib,
                 "slice_in_trials": options.slice_in_trials} if party == "cotengra" else {}
        return planner_peers.run(party, network, seconds, target, objective, options.threads,
                                 **extra)

    def cell(self, network, seconds, objective, parties, limit=None):
        """Measures what is missing of one cell. `limit` is given to the parties for `seconds`."""
        target = (self.options.target or None) if network.sliceable else None
        cell = find_cell(self.results, network, seconds, objective, target)
        new = False
        for party in parties:
            key = network.name, seconds, objective, party
            if self._kept(cell["parties"].get(party), party, key):
                continue
            figures = self._run(party, network, limit or seconds, target, objective)
            cell["parties"][party] = {**figures, "settings": self._settings(party),
                                      "run": self.number}
            self.measured.add(key)
            new = True
            save(self.options, self.results)
        for figures in cell["parties"].values():
            executed.fill(self.options.micro_binary, network, objective, figures["best"])
        save(self.options, self.results)
        if new:
            print(line(cell), file=sys.stderr, flush=True)

    def cells(self, network):
        times = sorted(self.options.seconds)
        for seconds in times[:1] if len(network.inputs) <= SMALL else times:
            for objective in self.options.objectives:
                self.cell(network, seconds, objective, self.options.parties)

    def catch_up(self, network):
        slow, quick = verdict.CATCH_UP
        if slow in self.options.seconds and len(network.inputs) > SMALL:
            for objective in self.options.objectives:
                self.cell(network, float(quick), objective, ["tenon"], quick - _CATCH_UP_SLACK)

    def anchors(self, all_networks):
        by_name = {network.name: network for network in all_networks}
        for name, (cost, seconds) in verdict.ANCHORS.items():
            if name not in by_name:
                if self.options.only:
                    continue
                raise BenchError(f"{name} is not there: no anchor")
            done = [anchor for anchor in self.results["anchors"] if anchor["network"] == name]
            if done and "anchors" not in self.options.again:
                continue
            figures = self.tenon.run(by_name[name], seconds, None, "flops")
            self.results["anchors"] = [anchor for anchor in self.results["anchors"]
                                       if anchor["network"] != name]
            self.results["anchors"].append({"network": name, "log10_flops": cost,
                                            "seconds": seconds, "tenon": figures,
                                            "run": self.number})
            save(self.options, self.results)
            best = figures["best"]["log10_flops"]
            print(f"{name}: log10 flops {best:.3f} in {figures['seconds']:.1f} s",
                  file=sys.stderr, flush=True)

    def micro(self):
        """Greedy and exact search inside the engine; a plan out of the server's cache."""
        for name, network in (("greedy", corpus_networks.random_regular(1000, 3, seed=1)),
                              ("optimal", corpus_networks.dense(14, seed=4))):
            if name not in self.results["micro"] or "micro" in self.options.again:
                self._keep_micro(name, self._engine(name, network))
        if "cached" not in self.results["micro"] or "micro" in self.options.again:
            network = corpus_networks.lattice((12, 12))
            figures = self.tenon.run(network, 1.0, self.options.target or None, "flops",
                                     calls=self.options.repeat + 1)
            self._keep_micro("cached", {"seconds": figures["repeated_seconds"],
                                        "first_seconds": figures["seconds"],
                                        "command": "tenon plan, process and call"})

    def _engine(self, name, network):
        """What --micro-binary prints: {"seconds": [...]} of one search each."""
        binary = self.options.micro_binary
        if not binary.exists():
            raise BenchError(f"{binary} does not exist; build planner_micro")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(network.document(), file)
            file.flush()
            command = [str(binary), name, file.name, "--repeat", str(self.options.repeat)]
            answer = subprocess.run(command, capture_output=True, text=True,
                                    env=planner_peers.environment(1))
        if answer.returncode != 0:
            raise BenchError(f"{shlex.join(command)}: {answer.stderr.strip()}")
        return {**json.loads(answer.stdout), "network": network.name, "command": binary.name}

    def _keep_micro(self, name, figures):
        figures["milliseconds"] = 1e3 * statistics.median(figures["seconds"])
        self.results["micro"][name] = {**figures, "run": self.number}
        save(self.options, self.results)


def line(cell):
    """One cell, as it is done."""
    parts = [f"{verdict.cell_name(cell)}:"]
    for party, figures in cell["parties"].items():
        score = verdict.log_score(cell, party)
        cost = "no plan" if score is None else f"{score:.3f}"
        used = figures["seconds"]
        parts.append(f"{party} {cost} ({'–' if used is None else format(used, '.1f')} s)")
    value = verdict.ratio(cell)
    if value is not None:
        parts.append(f"tenon ÷ best {value:.3g}")
    busy = max(figures["foreign_processors"] for figures in cell["parties"].values())
    if busy > 0.1:
        parts.append(f"[other work took {busy:.2f} processors]")
    return " ".join(parts)


def measure(bench):
    options = bench.options
    chosen = corpus_networks.choose(options.networks, options.only)
    for network in chosen:
        if "cells" in options.parts:
            bench.cells(network)
        if "catchup" in options.parts:
            bench.catch_up(network)
    if "anchors" in options.parts:
        bench.anchors(chosen)
    if "micro" in options.parts:
        bench.micro()


def told(arguments):
    """A command for the record: files by their names alone, so that it names no machine's folders."""
    def plain(argument):
        option, is_pair, value = argument.rpartition("=")
        return option + is_pair + (pathlib.Path(value).name if value.startswith("/") else value)
    return shlex.join(map(plain, arguments))


def run_all(options):
    """Measures and saves after every figure. Returns the results."""
    results = load(options.output)
    run = {"date": machine.date(), "commit": machine.commit(), "threads": options.threads,
           "thread_settings": planner_peers.thread_settings(options.threads),
           "command": told(["run.py", *sys.argv[1:]]), "machine": machine.describe(),
           "seconds": options.seconds, "target": options.target, "seed": options.seed}
    peers = [party for party in options.parties if party != "tenon"]
    versions = planner_peers.require(peers, options.threads)
    run["peers"] = versions
    results["runs"].append(run)
    if "tenon" not in options.parties:
        measure(Bench(options, results, None, versions))
        return results
    from tenon_side import Tenon
    with Tenon(options.tenon_binary, None if options.no_server else options.server_binary,
               options.threads, options.seed) as tenon:
        run["tenon"] = {"version": tenon.version(), "command": told(
            tenon.command("NETWORK.json", 2, options.target, "flops"))}
        measure(Bench(options, results, tenon, versions))
    return results


def main():
    options = parse(sys.argv[1:])
    try:
        results = load(options.source) if options.source else run_all(options)
    except BenchError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    print((verdict.short_table if options.short else verdict.table)(results["cells"]))
    wrong = verdict.faults(results)
    if not (options.markdown or options.short):
        print(verdict.checklist(results))
        print("\n".join(verdict.notes(results)))
    for text in wrong:
        print(f"run.py: {text}", file=sys.stderr)
    missed = options.strict and not all(r["met"] for r in verdict.requirements(results))
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
