"""cotengra's side of the amplitude benchmark, in a process of its own, in the peers' environment.

Reads a job as JSON on stdin and prints one JSON object. `amplitudes.py` is the other end.

  plan  searches paths of a circuit's network, for one amplitude or for many
  run   contracts amplitudes one by one with a reused expression
"""

import json
import math
import os
import sys
import time

import cotengra
import numpy as np

import circuits
from load import ForeignLoad


def _network(job):
    gates = circuits.random_circuit(job["rows"], job["cols"], job["depth"], job["seed"])
    return circuits.amplitude_network("", job["rows"] * job["cols"], gates)


def _symbols(network):
    """The network in one-character names, as cotengra's executor wants them."""
    names = {index: cotengra.get_symbol(i) for i, index in enumerate(network.size_dict)}
    inputs = [tuple(names[index] for index in indices) for indices in network.inputs]
    return inputs, {names[index]: size for index, size in network.size_dict.items()}


def plan(job):
    """The path with the fewest multiply-adds for `sets` amplitudes that cotengra finds.

    Many amplitudes are one network with a further index over them, on the output vectors and on the
    result: what does not have it is computed once.
    """
    amplitude = _network(job)
    inputs, sizes = _symbols(amplitude.network)
    output, index = (), cotengra.get_symbol(len(sizes))
    if job["sets"] > 1:
        output, sizes[index] = (index,), job["sets"]
        inputs = [indices + (index,) if k >= amplitude.first_vector else indices
                  for k, indices in enumerate(inputs)]
    search = cotengra.HyperOptimizer(methods=job["methods"], max_time=job["seconds"],
                                     parallel=False, minimize="flops", reconf_opts={},
                                     on_trial_error="ignore")
    tree = search.search(inputs, output, sizes)
    shared = varying = 0
    for parent, left, right in tree.traverse():
        legs = [*tree.get_legs(parent), *tree.get_legs(left), *tree.get_legs(right)]
        if index in legs:
            varying += tree.get_flops(parent)
        else:
            shared += tree.get_flops(parent)
    return {"path_ssa": [list(pair) for pair in tree.get_ssa_path()],
            "log10_shared": math.log10(max(shared, 1)),
            "log10_each": math.log10(max(varying / job["sets"], 1)), "trials": len(search.scores)}


def run(job):
    """Seconds to make the expression, and of each amplitude; the amplitudes as [re, im].

    With `fold`, the expression has the gates as constants and is told the vectors alone.
    """
    amplitude = _network(job)
    inputs, sizes = _symbols(amplitude.network)
    tree = cotengra.ContractionTree.from_path(inputs, (), sizes, ssa_path=job["path_ssa"])
    gates = [array.astype(job["dtype"]) for array in amplitude.arrays]
    fixed, constants = ([], dict(enumerate(gates))) if job["fold"] else (gates, None)
    load = ForeignLoad([os.getpid()])
    start = time.perf_counter()
    expression = cotengra.array_contract_expression(inputs, (), sizes, optimize=tree.get_path(),
                                                    constants=constants)
    setup = time.perf_counter() - start
    seconds, values = [], []
    for bits in job["bits"]:
        vectors = amplitude.vectors(map(int, bits), job["dtype"])
        start = time.perf_counter()
        value = complex(expression(*fixed, *vectors))
        seconds.append(time.perf_counter() - start)
        values.append([value.real, value.imag])
    return {"setup_seconds": setup, "seconds": seconds, "values": values,
            "foreign_processors": load.processors(),
            "versions": {"cotengra": cotengra.__version__, "numpy": np.__version__}}


if __name__ == "__main__":
    JOB = json.load(sys.stdin)
    print(json.dumps({"plan": plan, "run": run}[JOB["kind"]](JOB)))
