"""Runs peers in processes of their own (`peer.py` is what runs there) and reads what they say."""

import json
import os
import pathlib
import statistics
import subprocess
import threading
import time

import timing
from corpus import BenchError, has_reference

# Name -> (what executes, whose arrays).
PEERS = {
    "cotengra-numpy": ("cotengra", "numpy"),
    "cotengra-torch": ("cotengra", "torch"),
    "opt_einsum-numpy": ("opt_einsum", "numpy"),
}
_WORKER = pathlib.Path(__file__).with_name("peer.py")
_GRACE_SECONDS = 10  # for what a peer does after its cap: the repetition that it is in


def environment(threads):
    """The environment of every process that is measured, the peers' and Tenon's."""
    env = dict(os.environ)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        env[name] = str(threads)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_PROC_BIND", "PYTHONPATH"):
        env.pop(name, None)
    return env


def _converse(python, job, timeout=None):
    """Runs a job. Returns (events, seconds since `begin` when it was killed, or None).

    `timeout` counts from the event `begin`.
    """
    process = subprocess.Popen([str(python), str(_WORKER)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment(job["threads"]))
    events, begin, killed_after = [], [], []
    stderr = []
    reader = threading.Thread(target=lambda: stderr.append(process.stderr.read()))
    reader.start()

    def kill():
        killed_after.append(time.monotonic() - begin[0])
        process.kill()

    timer = None
    process.stdin.write(json.dumps(job))
    process.stdin.close()
    for line in process.stdout:
        event = json.loads(line)
        events.append(event)
        if event["event"] == "begin" and timeout is not None:
            begin.append(time.monotonic())
            timer = threading.Timer(timeout, kill)
            timer.start()
    code = process.wait()
    if timer:
        timer.cancel()
    reader.join()
    if killed_after:
        return events, killed_after[0]
    if code != 0:
        raise BenchError(f"peer {job}: exit code {code}\n{stderr[0]}")
    return events, None


def require(python, peers, threads):
    """Returns the versions of the peers and of what they use; BenchError when one is missing."""
    if not pathlib.Path(python).exists():
        raise BenchError(f"no peers: {python} does not exist; run tests/bench/setup.sh")
    modules = {"numpy", "threadpoolctl"}
    for peer in peers:
        library, arrays = PEERS[peer]
        modules |= {"cotengra", library, arrays}
    job = {"kind": "versions", "modules": sorted(modules), "threads": threads}
    event = _converse(python, job)[0][-1]
    if event["event"] == "missing":
        raise BenchError(f"peer library {event['module']} is missing ({event['error']}); "
                         "run tests/bench/setup.sh")
    del event["event"]
    return event


def gemm_peaks(python, peers, dtypes, threads, retries):
    """Real GFLOP/s of a large matrix product by library and element type.

    Measured again when other work disturbed it, `retries` times; the best of all counts.
    """
    peaks = {}
    for library in sorted({PEERS[peer][1] for peer in peers} | {"numpy"}):
        job = {"kind": "gemm", "arrays": library, "threads": threads, "dtypes": sorted(dtypes)}
        best = dict.fromkeys(dtypes, 0.0)
        for _ in range(1 + max(0, retries)):
            event = _converse(python, job)[0][-1]
            best = {dtype: max(best[dtype], event["gflops"][dtype]) for dtype in dtypes}
            if not timing.disturbed(event):
                break
        peaks[library] = best
    return peaks


def run(python, peer, network, dtype, reference, threads, cap, repeats):
    """Measures one peer on one network; see `outcome` for what it returns."""
    library, arrays = PEERS[peer]
    job = {"kind": "contraction", "library": library, "arrays": arrays, "network": network.path,
           "dtype": dtype, "threads": threads, "cap": cap, "repeats": repeats,
           "reference": reference if has_reference(reference, dtype) else None}
    events, killed_after = _converse(python, job, timeout=cap + _GRACE_SECONDS)
    return outcome(events, killed_after, network.nslices)


def outcome(events, killed_after, nslices):
    """What a peer's events say.

    seconds      of the whole contraction
    over         True: it was stopped, and `seconds` is a lower bound
    scaled_from  the number of slices that were timed, where that is not all of them
    cold_only    True: the only slice that ended was the first, which pays for being cold
    raw          the times as they were taken; memory, check and load as the peer sent them
    """
    by_kind = {}
    for event in events:
        by_kind.setdefault(event["event"], []).append(event)

    def times(kind):
        return [event["seconds"] for event in by_kind.get(kind, [])]

    timed = by_kind.get("timed", [])
    answer = {"over": False, "cold_only": False,
              "raw": {kind: times(kind) for kind in ("cold", "warm", "timed")}}
    slices = timed[0]["slices"] if timed else 1
    if timed:
        seconds = statistics.median(times("timed"))
    elif times("warm") or times("cold"):
        seconds = (times("warm") or times("cold"))[0]
        answer["cold_only"] = not times("warm")
    else:
        seconds, answer["over"] = killed_after, True
    answer["seconds"] = timing.scaled(seconds, slices, nslices)
    if slices != nslices:
        answer["scaled_from"] = slices
    for kind in ("memory", "check", "load"):
        if kind in by_kind:
            answer[kind] = {k: v for k, v in by_kind[kind][0].items() if k != "event"}
    return answer
