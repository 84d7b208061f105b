#!/usr/bin/env python3
"""The same quimb program with quimb's own contraction and with tenon: seconds, as JSON.

    TENON_TENOND=build/server/tenond tests/bench/client/quimb_program.py

The program makes a random circuit on a square grid, then contracts one amplitude that is planned
anew, the same network again along its plan, and amplitudes of further bit strings. quimb contracts
by cotengra on NumPy; its searches get the same seconds as the server's, in cotengra's
HyperOptimizer. Values are compared.

Every run is a process of its own; what is imported and started counts as "imports_and_first_use".
Needs an environment with quimb, and protoc with grpc_python_plugin for the stubs.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--columns", type=int, default=5)
    parser.add_argument("--depth", type=int, default=10, help="layers of gates")
    parser.add_argument("--amplitudes", type=int, default=8, help="after the first")
    parser.add_argument("--search-seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="medians are printed")
    parser.add_argument("--run", choices=("quimb", "tenon"), help=argparse.SUPPRESS)
    return parser.parse_args()


def circuit(rows, columns, depth):
    """Random one-qubit gates on a grid, with CZ along one of four patterns of bonds a layer."""
    import numpy as np
    import quimb.tensor as qtn

    numbers = np.random.default_rng(7)
    made = qtn.Circuit(rows * columns)
    for layer in range(depth):
        for qubit in range(rows * columns):
            made.u3(*numbers.uniform(0, 2 * np.pi, 3), qubit)
        for row in range(rows):
            for column in range(columns):
                down, right = layer % 4 < 2, row * columns + column
                place = row if down else column
                if place % 2 == layer % 2 and place + 1 < (rows if down else columns):
                    made.cz(right, right + (columns if down else 1))
    return made


def strings(count, qubits):
    import numpy as np
    return ["".join(map(str, bits)) for bits in
            np.random.default_rng(3).integers(0, 2, (count, qubits))]


class Quimb:
    """quimb's own contraction."""

    def __init__(self, options):
        import cotengra
        self._search = dict(max_time=options.search_seconds, max_repeats=10**6, parallel=False,
                            progbar=False)
        self._hyper, self._tree = cotengra.HyperOptimizer, None

    def first(self, network):
        self._tree = network.contraction_tree(self._hyper(**self._search))
        return self.again(network)

    def again(self, network):
        return network.contract(optimize=self._tree)

    def close(self):
        pass


class Tenon:
    """The same by a private server."""

    def __init__(self, options):
        import tenon
        self._client, self._seconds = tenon.Client(), options.search_seconds
        self._plan = None

    def first(self, network):
        inputs = [tensor.inds for tensor in network]
        self._plan = self._client.plan(inputs, [], {name: network.ind_size(name)
                                                    for name in network.ind_map},
                                       max_time=self._seconds)
        return self.again(network)

    def again(self, network):
        return self._client.contract(network, plan=self._plan)

    def close(self):
        self._client.close()


def program(contractor, options, rows, columns, depth, amplitudes):
    """Seconds of each part, and the values."""
    made = circuit(rows, columns, depth)
    # The network keeps its shape for every string: the same plan serves all.
    networks = [made.amplitude_tn(bits, simplify_sequence="")
                for bits in strings(1 + amplitudes, rows * columns)]
    seconds, values, start = {}, [], time.perf_counter()
    for name, part, work in (("plan_and_contract", networks[:1], contractor.first),
                             ("contract_again", networks[:1], contractor.again),
                             ("further_amplitudes", networks[1:], contractor.again)):
        values += [complex(work(network)) for network in part]
        now = time.perf_counter()
        seconds[name], start = now - start, now
    return seconds, values


def run_one(options):
    start = time.perf_counter()
    contractor = {"quimb": Quimb, "tenon": Tenon}[options.run](
        argparse.Namespace(search_seconds=0.1))
    program(contractor, options, 2, 2, 2, 1)
    contractor.close()
    first = time.perf_counter() - start
    contractor = {"quimb": Quimb, "tenon": Tenon}[options.run](options)
    seconds, values = program(contractor, options, options.rows, options.columns, options.depth,
                              options.amplitudes)
    contractor.close()
    print(json.dumps({"seconds": {"imports_and_first_use": first, **seconds},
                      "values": [[value.real, value.imag] for value in values]}))


def run_in_process(side, options, folder):
    environment = {**os.environ, "PYTHONPATH": folder, "PYTHONWARNINGS": "ignore"}
    answer = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--run", side], check=True,
                            stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(answer.stdout)


def difference(left, right):
    """The largest, relative to the largest value."""
    scale = max(abs(complex(*value)) for value in right)
    return max(abs(complex(*a) - complex(*b)) for a, b in zip(left, right, strict=True)) / scale


def main():
    options = arguments()
    if options.run:
        return run_one(options)
    from conftest import make_package
    with tempfile.TemporaryDirectory() as folder:
        make_package(pathlib.Path(folder))
        rounds = [{side: run_in_process(side, options, folder) for side in ("quimb", "tenon")}
                  for _ in range(options.rounds)]
    seconds = {name: {side: statistics.median(turn[side]["seconds"][name] for turn in rounds)
                      for side in ("quimb", "tenon")}
               for name in rounds[0]["quimb"]["seconds"]}
    for sides in seconds.values():
        sides["quimb_over_tenon"] = sides["quimb"] / sides["tenon"]
    print(json.dumps({
        "circuit": {"rows": options.rows, "columns": options.columns, "depth": options.depth},
        "amplitudes": 1 + options.amplitudes, "search_seconds": options.search_seconds,
        "cores": len(os.sched_getaffinity(0)),
        "largest_relative_difference": max(difference(turn["tenon"]["values"],
                                                      turn["quimb"]["values"]) for turn in rounds),
        "seconds": seconds}, indent=2))


if __name__ == "__main__":
    main()
