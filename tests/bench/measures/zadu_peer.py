"""One measurement of a peer, in a process of its own. Runs in the peers' environment.

Reads a job as JSON on stdin and prints one JSON object. `zadu_peers.py` is the other end.

  versions  what is installed; {"missing": ...} where something is not
  case      one case of cases.py by zadu or by scikit-learn
  stream    zadu's iter_measure_many over projections of the digits
"""

import importlib
import json
import os
import statistics
import sys
import time

import numpy as np

import cases

sys.path.insert(0, str(cases.ROOT / "tests" / "bench" / "contraction"))
import timing  # noqa: E402
from load import ForeignLoad  # noqa: E402
from peer import reset_high_water, seconds_of, status_bytes  # noqa: E402

_MODULES = ("numpy", "scipy", "sklearn", "numba", "hdbscan", "zadu", "threadpoolctl")
_WARM_UP_ROWS = 200


def _specs(measures):
    specs = []
    for alias in measures:
        params = cases.parameters(alias)
        if alias in cases.RANDOMISED:
            params["random_state"] = 0
        specs.append({"id": alias, "params": params})
    return specs


def _zadu(measures, data, projection, labels):
    """(seconds of the constructor and measure(), and of the latter alone; scores)."""
    from zadu import ZADU
    start = time.perf_counter()
    runner = ZADU(_specs(measures), data)
    built = time.perf_counter()
    scores = runner.measure(projection, labels)
    return {"seconds": time.perf_counter() - start, "further": time.perf_counter() - built}, scores


def _with_cpu(call, *arguments):
    """What `call` returns, with the processors' seconds of all threads."""
    start = time.process_time()
    figures, scores = call(*arguments)
    return {**figures, "cpu_seconds": time.process_time() - start}, scores


def _sklearn(measures, data, projection, labels):
    """Trustworthiness of both directions: continuity is that of the data set to the projection."""
    from sklearn.manifold import trustworthiness
    start = time.perf_counter()
    trust = trustworthiness(data, projection, n_neighbors=cases.NEIGHBORS)
    continuity = trustworthiness(projection, data, n_neighbors=cases.NEIGHBORS)
    seconds = time.perf_counter() - start
    return ({"seconds": seconds, "further": seconds},
            [{"trustworthiness": trust, "continuity": continuity}])


def _medians(runs):
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def run_case(job):
    """Medians of several calls, after a small one that pays for imports and compilation."""
    call = {"zadu": _zadu, "sklearn": _sklearn}[job["peer"]]
    small = cases.normal_data(_WARM_UP_ROWS, job["columns"])
    inputs = cases.normal_data(job["rows"], job["columns"])
    if not job["labels"]:
        small, inputs = (*small[:2], None), (*inputs[:2], None)
    call(job["measures"], *small)
    reset, before = reset_high_water(), status_bytes("VmRSS")
    load = ForeignLoad([os.getpid()])
    first, scores = _with_cpu(call, job["measures"], *inputs)
    memory = {"inputs_bytes": before, "peak_bytes": status_bytes("VmHWM"),
              "high_water_reset": reset}
    left = job["cap"] - first["seconds"]
    repeats = timing.plan(first["seconds"], 1, max(left, 0), job["repeats"]).repeats
    runs = [first]
    if left > first["seconds"]:
        runs += [_with_cpu(call, job["measures"], *inputs)[0] for _ in range(repeats)]
    return {"over": False, **_medians(runs), "raw": [run["seconds"] for run in runs],
            "scores": scores, "memory": memory,
            "load": {"foreign_processors": load.processors()}}


def run_stream(job):
    """Seconds of the constructor, and of each projection; the first `sample` of them are timed."""
    from zadu import ZADU
    data, projections = cases.digits(job["sample"])
    small = cases.normal_data(_WARM_UP_ROWS, job["columns"])
    _zadu(job["measures"], *small)
    load = ForeignLoad([os.getpid()])
    setup, runner = seconds_of(lambda: ZADU(_specs(job["measures"]), data))
    start, results = time.perf_counter(), []
    for result in runner.iter_measure_many(projections):
        results.append(result.result)
    each = (time.perf_counter() - start) / len(projections)
    return {"over": False, "seconds": setup + job["count"] * each, "setup_seconds": setup,
            "each_seconds": each, "sample": len(projections), "scores": results,
            "load": {"foreign_processors": load.processors()}}


def run_versions(job):
    versions = {"python": sys.version.split()[0]}
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            return {"missing": name, "error": str(error)}
        versions[name] = getattr(module, "__version__", None) or _installed(name)
    import threadpoolctl
    pools = [{key: value for key, value in pool.items() if key != "filepath"}
             for pool in threadpoolctl.threadpool_info()]
    return {"versions": versions, "thread_pools": pools}


def _installed(name):
    import importlib.metadata
    return importlib.metadata.version(name)


def _plain(value):
    """NumPy's numbers as JSON's."""
    return value.item() if isinstance(value, np.generic) else str(value)


if __name__ == "__main__":
    JOB = json.load(sys.stdin)
    KINDS = {"versions": run_versions, "case": run_case, "stream": run_stream}
    print(json.dumps(KINDS[JOB["kind"]](JOB), default=_plain))
