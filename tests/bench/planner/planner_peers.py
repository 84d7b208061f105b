"""The peers' side: runs cotengra_peer.py and omeco_peer.py, and judges what they found.

A peer has `seconds` for its search, once its workers are up and its modules imported. The slicing
of what it found comes on top (20 s or half the time), and so does what it overshoots. All of it is
in the figures.
"""

import json
import math
import os
import pathlib
import subprocess
import threading
import time

from corpus import BenchError
from cost import PathError, evaluate, log10
from watch import Watch

_HERE = pathlib.Path(__file__).resolve().parent
VENV = {"cotengra": _HERE.parent / ".venv-planner", "omeco": _HERE.parent / ".venv-omeco"}
METHODS = ("greedy", "kahypar")
_FINISH_SECONDS = 20  # of slicing, at least
_START_SECONDS = 60  # imports and workers, before the time runs


def environment(threads):
    """Each worker process of cotengra computes with one thread; omeco has `threads`."""
    env = dict(os.environ, RAYON_NUM_THREADS=str(threads), COTENGRA_NUM_WORKERS=str(threads))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        env[name] = "1"
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONPATH"):
        env.pop(name, None)
    return env


def thread_settings(threads):
    return {"cotengra": f"{threads} worker processes (loky), one BLAS thread each",
            "omeco": f"RAYON_NUM_THREADS={threads}, ntrials={threads}",
            "tenon": f"--threads={threads}"}


def _converse(python, worker, job, limit):
    """Events of a worker, and whether it was killed after `limit` seconds from its start."""
    process = subprocess.Popen([str(python), str(_HERE / worker)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment(job["threads"]), start_new_session=True)
    killed, stderr = threading.Event(), []

    def kill():
        killed.set()
        os.killpg(process.pid, 9)  # of the group that was made for it

    timer = threading.Timer(limit, kill)
    reader = threading.Thread(target=lambda: stderr.append(process.stderr.read()))
    timer.start()
    reader.start()
    with process.stdin:
        process.stdin.write(json.dumps(job))
    events = [json.loads(line) for line in process.stdout]
    code = process.wait()
    timer.cancel()
    reader.join()
    if code != 0 and not killed.is_set():
        raise BenchError(f"{worker}: exit code {code}\n{stderr[0]}")
    return events, killed.is_set()


def _python(peer):
    python = VENV[peer] / "bin" / "python"
    if not python.exists():
        raise BenchError(f"{peer} is missing: no {python}; run tests/bench/setup.sh planner")
    return python


def require(peers, threads):
    """Versions of every peer and of what it uses; BenchError when one is missing."""
    found = {}
    for peer in peers:
        job = {"kind": "versions", "threads": threads}
        event = _converse(_python(peer), f"{peer}_peer.py", job, _START_SECONDS)[0][-1]
        if event.pop("event") == "missing":
            raise BenchError(f"{peer}: {event['module']} is missing ({event['error']}); run "
                             "tests/bench/setup.sh planner")
        found[peer] = event
    return found


def judge(network, target, objective, candidates):
    """The best of the candidates that fit the target: figures of it, or None."""
    best = None
    for candidate in candidates:
        cost = evaluate(network, candidate["path"], candidate["sliced"])
        if target and cost.largest > target:
            continue
        if best is None or cost.score(objective) < best[0]:
            best = cost.score(objective), cost, candidate
    if best is None:
        return None
    score, cost, candidate = best
    return {"log10_score": log10(score), "log10_flops": log10(cost.flops),
            "log10_read_write": log10(cost.read_write), "log2_largest": math.log2(cost.largest),
            "slices": cost.slices, "sliced": candidate["sliced"], "path": candidate["path"],
            "how": candidate.get("how")}


def run(peer, network, seconds, target, objective, threads, methods=METHODS, optlib="optuna",
        slice_in_trials=False):
    """Measures one peer. `best` of the answer is None if nothing that fits was found."""
    finish = max(_FINISH_SECONDS, 0.5 * seconds)
    job = {"kind": "plan", "inputs": network.inputs, "output": network.output,
           "sizes": network.sizes, "seconds": seconds, "target": target,
           "log2_target": math.log2(target) if target else None, "objective": objective,
           "threads": threads, "finish_seconds": finish, "methods": list(methods),
           "optlib": optlib, "slice_in_trials": slice_in_trials and bool(target)}
    watch, start = Watch(), time.monotonic()
    events, killed = _converse(_python(peer), f"{peer}_peer.py", job,
                               _START_SECONDS + 3 * seconds + finish + 60)
    wall = time.monotonic() - start
    candidates = [event for event in events if event["event"] == "candidate"]
    try:
        best = judge(network, target, objective, candidates)
    except PathError as error:
        raise BenchError(f"{peer}: {error}") from error
    end = next((event for event in events if event["event"] == "end"), {})
    used = max((event["seconds"] for event in candidates), default=None)
    return {"best": best, "seconds": used, "search_seconds": end.get("search_seconds"),
            "overshoot_seconds": None if used is None else used - seconds, "wall_seconds": wall,
            "trials": end.get("trials"), "failed_trials": end.get("failed_trials"),
            "best_method": end.get("best_method"), "killed": killed,
            "given_up": [event["how"] for event in events if event["event"] == "given_up"],
            "candidates": _told(network, objective, candidates),
            "foreign_processors": watch.processors()}


def _told(network, objective, candidates):
    """How each candidate did, without its path."""
    told = []
    for candidate in candidates:
        cost = evaluate(network, candidate["path"], candidate["sliced"])
        told.append({"how": candidate["how"], "seconds": candidate["seconds"],
                     "log10_score": log10(cost.score(objective)), "slices": cost.slices,
                     "log2_largest": math.log2(cost.largest)})
    return told
