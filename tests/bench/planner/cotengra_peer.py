"""Runs in a process of its own, in the environment that has cotengra: searches, then slices.

One job on standard input, events on standard output, one JSON object a line:
  begin      the workers are up, the search starts
  candidate  an SSA path, its sliced indices, how it came, seconds since `begin`
  end        trials, seconds of the search
cotengra names indices with one character each, since cotengrust takes no others.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import time
import warnings
from importlib.metadata import version

_MODULES = ("cotengra", "kahypar", "cotengrust", "optuna", "loky", "numpy")
_NO_LIMIT = 10**9


def say(**event):
    print(json.dumps(event), flush=True)


def versions():
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            say(event="missing", module=name, error=str(error))
            return
    say(event="versions", python=sys.version.split()[0],
        **{name: version(name) for name in _MODULES})


def _idle(seconds):
    """Keeps a worker busy for a moment, so that every worker starts and has cotengra imported."""
    import cotengra  # noqa: F401
    time.sleep(seconds)
    return os.getpid()


def _pool(workers):
    import cotengra.parallel
    pool = cotengra.parallel.get_pool(n_workers=workers, maybe_create=True, backend="loky")
    for future in [pool.submit(_idle, 0.3) for _ in range(2 * workers)]:
        future.result()
    return pool


def _search(job, network, pool):
    """The best tree of an unsliced search; every trial is reconfigured by subtrees."""
    import cotengra
    minimize = {"flops": "flops", "weighted": "combo-64"}[job["objective"]]
    options = dict(methods=job["methods"], minimize=minimize, max_repeats=_NO_LIMIT,
                   max_time=job["seconds"], parallel=pool, optlib=job["optlib"],
                   on_trial_error="ignore", reconf_opts={})
    if job["slice_in_trials"]:
        options["slicing_reconf_opts"] = {"target_size": job["target"]}
    optimizer = cotengra.HyperOptimizer(**options)
    return optimizer, optimizer.search(*network)


def _slices(tree, target, how):
    """Copies of the tree sliced to the target; each costs more time than the one before."""
    if how == "slice_and_reconfigure":
        for step, repeats in ((8, 4), (2, 16)):
            yield tree.slice_and_reconfigure(target_size=target, step_size=step,
                                             max_repeats=repeats)
    else:
        for repeats in (2, 16, 64):
            yield tree.slice(target_size=target, max_repeats=repeats)


def _slice_and_tell(job, tree, how, begin, names, pipe):
    for sliced in _slices(tree, job["target"], how):
        pipe.send(_candidate(sliced, how, begin, names))


def _candidate(tree, how, begin, names):
    return {"event": "candidate", "how": how, "seconds": time.monotonic() - begin,
            "path": [list(pair) for pair in tree.get_ssa_path()],
            "sliced": [names[index] for index in tree.sliced_inds]}


def _finish(job, tree, begin, names):
    """Slices in both ways at once, one process each, until `finish_seconds` are over."""
    context, running = multiprocessing.get_context("fork"), []
    for how in ("slice", "slice_and_reconfigure"):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_slice_and_tell,
                                  args=(job, tree, how, begin, names, sender))
        process.start()
        sender.close()
        running.append((how, process, receiver))
    deadline = time.monotonic() + job["finish_seconds"]
    for how, process, receiver in running:
        with contextlib.suppress(EOFError):
            while receiver.poll(max(0.0, deadline - time.monotonic())):
                say(**receiver.recv())
            say(event="given_up", how=how)
        process.kill()
        process.join()


def plan(job):
    import cotengra
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(100_000)
    symbol = {name: cotengra.get_symbol(k) for k, name in enumerate(job["sizes"])}
    names = {character: name for name, character in symbol.items()}
    # A repeated index within a tensor changes no path; the peers see it once.
    network = ([tuple(dict.fromkeys(symbol[i] for i in legs)) for legs in job["inputs"]],
               tuple(symbol[i] for i in job["output"]),
               {symbol[i]: size for i, size in job["sizes"].items()})
    pool = _pool(job["threads"])
    say(event="begin")
    begin = time.monotonic()
    optimizer, tree = _search(job, network, pool)
    searched = time.monotonic() - begin
    pool.shutdown(wait=True, kill_workers=True)  # trials that still run would take our processors
    say(**_candidate(tree, "slices in trials" if job["slice_in_trials"] else "unsliced", begin,
                     names))
    if job["target"] and tree.max_size() > job["target"]:
        _finish(job, tree, begin, names)
    say(event="end", trials=len(optimizer.scores), search_seconds=searched,
        failed_trials=sum(score == float("inf") for score in optimizer.scores),
        best_method=optimizer.best["params"]["method"])


def main():
    job = json.load(sys.stdin)
    versions() if job["kind"] == "versions" else plan(job)


if __name__ == "__main__":
    main()
