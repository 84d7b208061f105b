"""Runs in a process of its own, in the environment that has omeco: TreeSA, then its slicer.

Job and events are those of cotengra_peer.py. omeco takes no time limit and no seed: short runs tell
what a sweep costs, and the rest of the time goes to runs as long as fit, up to its defaults.
"""

import importlib
import json
import sys
import time
from importlib.metadata import version

_BETAS = [0.01 + 0.05 * k for k in range(1, 301)]  # the default schedule
_SWEEPS = 50  # the default number of sweeps at each of them
_PROBE = 10  # of the betas, in the first run
_FINALISTS = 3


def say(**event):
    print(json.dumps(event), flush=True)


def versions():
    try:
        importlib.import_module("omeco")
    except ImportError as error:
        say(event="missing", module="omeco", error=str(error))
        return
    say(event="versions", python=sys.version.split()[0], omeco=version("omeco"))


def ssa(tree, count):
    """The SSA path of a tree as omeco's dictionaries tell it; no recursion: trees are deep."""
    path, done, stack = [], [], [(tree, False)]
    while stack:
        node, ready = stack.pop()
        if "tensor_index" in node:
            done.append(node["tensor_index"])
        elif not ready:
            stack.append((node, True))
            stack.extend((child, False) for child in node["args"])
        else:
            for _ in range(len(node["args"]) - 1):
                path.append([done.pop(), done.pop()])
                done.append(count + len(path) - 1)
    return path


class Search:
    """TreeSA until the time is over; keeps the best few trees."""

    def __init__(self, job, ixs, output, sizes):
        import omeco
        self.omeco, self.job, self.network = omeco, job, (ixs, output, sizes)
        self.begin = time.monotonic()
        self.trees, self.runs, self._per_sweep = [], 0, 0.0

    def elapsed(self):
        return time.monotonic() - self.begin

    def _weight(self):
        return {"flops": 0.0, "weighted": 64.0}[self.job["objective"]]

    def _anneal(self, betas, sweeps, size_weight):
        omeco, target = self.omeco, self.job["log2_target"] or 0.0
        score = omeco.ScoreFunction(1.0, size_weight, self._weight(), target)
        start = self.elapsed()
        tree = omeco.optimize_code(*self.network, omeco.TreeSA(
            ntrials=self.job["threads"], niters=sweeps, betas=betas, score=score))
        self._per_sweep = (self.elapsed() - start) / (len(betas) * sweeps)
        self.runs += 1
        self._keep(tree)

    def _keep(self, tree):
        ixs, _, sizes = self.network
        figures = tree.complexity(ixs, sizes)
        score = 2.0**figures.tc + self._weight() * 2.0**figures.rwc
        fits = self.job["log2_target"] is None or figures.sc <= self.job["log2_target"]
        # Those that need no slices first.
        self.trees.append((not fits, score, self.runs, tree))
        self.trees = sorted(self.trees, key=lambda entry: entry[:3])

    def run(self):
        self._keep(self.omeco.optimize_code(*self.network, self.omeco.GreedyMethod()))
        self._anneal(_BETAS[::len(_BETAS) // _PROBE], 1, 0.0)
        while True:
            fits = 0.95 * (self.job["seconds"] - self.elapsed()) / self._per_sweep
            if fits < 2 * _PROBE:
                return
            # With a target, every other run has the size in its score.
            size_weight = float(self.job["log2_target"] is not None and self.runs % 2)
            if fits < len(_BETAS):
                self._anneal(_BETAS[::-(-len(_BETAS) // int(fits))], 1, size_weight)
            else:
                self._anneal(_BETAS, min(_SWEEPS, int(fits / len(_BETAS))), size_weight)

    def finalists(self):
        """The best trees: without regard to size, and with."""
        by_score = sorted(self.trees, key=lambda entry: entry[1:3])[:_FINALISTS]
        chosen = self.trees[:1] + [entry for entry in by_score if entry is not self.trees[0]]
        return chosen[:_FINALISTS]

    def slice(self, tree, lower):
        """A tree sliced to 2^lower below the target."""
        omeco, (ixs, _, sizes) = self.omeco, self.network
        score = omeco.ScoreFunction(1.0, 1.0, self._weight(), self.job["log2_target"] - lower)
        slicer = omeco.TreeSASlicer(ntrials=self.job["threads"], score=score)
        return omeco.slice_code(tree, ixs, sizes, slicer)


def plan(job):
    import omeco
    number = {name: k for k, name in enumerate(job["sizes"])}
    names = list(job["sizes"])
    ixs = [[number[i] for i in dict.fromkeys(legs)] for legs in job["inputs"]]
    sizes = {number[i]: size for i, size in job["sizes"].items()}
    count = len(ixs)
    omeco.optimize_code([[0, 1], [1, 2]], [0, 2], {0: 2, 1: 2, 2: 2},
                        omeco.TreeSA(ntrials=job["threads"], niters=1))  # starts the threads
    say(event="begin")
    search = Search(job, ixs, [number[i] for i in job["output"]], sizes)
    search.run()
    searched = search.elapsed()
    for over, _, _, tree in search.finalists():
        say(event="candidate", how="unsliced", seconds=search.elapsed(),
            path=ssa(tree.to_dict(), count), sliced=[])
        if job["log2_target"] is None or not over:
            continue
        for lower in (0.0, 1.0):
            sliced = search.slice(tree, lower)
            say(event="candidate", how=f"sliced to target - {lower:g}", seconds=search.elapsed(),
                path=ssa(sliced.to_dict(), count),
                sliced=[names[k] for k in sliced.slicing()])
            if search.elapsed() > searched + job["finish_seconds"]:
                break
            if sliced.complexity(ixs, sizes).sc <= job["log2_target"]:
                break
        if search.elapsed() > searched + job["finish_seconds"]:
            say(event="given_up", how="further finalists")
            break
    say(event="end", trials=search.runs, search_seconds=searched)


def main():
    job = json.load(sys.stdin)
    versions() if job["kind"] == "versions" else plan(job)


if __name__ == "__main__":
    main()
