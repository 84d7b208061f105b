#!/usr/bin/python3
"""Measures many amplitudes of one random circuit: Tenon against cotengra's reused expression.

The network of an amplitude keeps an output vector for each qubit, and from one amplitude to the
next only these vectors change.

  Tenon     one Contract stream to a warm server: the header once, with the gates inline and the
            vectors marked varying, then for each amplitude its vectors alone; results come back in
            order. Timed at the client from the header to the report, planning and all that the
            amplitudes share included.
  cotengra  array_contract_expression on NumPy, called for each amplitude: along the path that is
            cheapest for one amplitude, as it is ("one") and with the gates as constants, which it
            folds once ("one, folded"); and folded along the path that Tenon is given, which lets
            amplitudes share most ("many, folded"). A sample of amplitudes is timed and the median
            scaled to all, plus the folding; the quickest of the three is what Tenon is compared
            with.

Both paths are cotengra's, found by --plan with the same time for each, and kept with the circuit in
tests/data/circuits. Depth 10 is about what single amplitudes are computed for: one takes cotengra a
few tens of milliseconds. From depth 12 on one amplitude of 25 qubits costs nearly a whole state.

    tests/bench/contraction/amplitudes.py --depths 10,12
    tests/bench/contraction/amplitudes.py --plan 60 --python PYTHON_WITH_KAHYPAR
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import circuits
import machine
import timing
from corpus import BenchError
from peers import environment
from service import Service, tenond

ROOT = machine.ROOT
HERE = pathlib.Path(__file__).parent
_TOLERANCE = {"complex64": 1e-4, "complex128": 1e-10}
_SEED = 1
_PLANNED_SETS = 1000
_TIMEOUT_SECONDS = 600
# Name -> (path, whether constants are folded).
_PEERS = {"one": ("one", False), "one, folded": ("one", True), "many, folded": ("many", True)}


def circuit_file(depth, rows=5, cols=5):
    return ROOT / "tests" / "data" / "circuits" / f"grid{rows}x{cols}_fsim_d{depth}.json"


def peer(options, **job):
    """Runs a job of amplitude_peer.py."""
    if not options.python.exists():
        raise BenchError(f"no peers: {options.python} does not exist; run tests/bench/setup.sh")
    answer = subprocess.run(
        [str(options.python), str(HERE / "amplitude_peer.py")], input=json.dumps(job),
        capture_output=True, text=True, env=environment(options.threads))
    if answer.returncode != 0:
        raise BenchError(f"the peer failed: {answer.stderr.strip()}")
    return json.loads(answer.stdout.splitlines()[-1])


def plan_circuit(options, depth):
    """Searches both paths of a circuit and writes its file."""
    circuit = {"rows": 5, "cols": 5, "depth": depth, "seed": _SEED, "two_qubit": "fsim"}
    found = {}
    for kind, sets in (("one", 1), ("many", _PLANNED_SETS)):
        found[kind] = peer(options, kind="plan", sets=sets, seconds=options.plan,
                           methods=["greedy", "kahypar"], **circuit)
        print(f"depth {depth}, {kind}: 10^{found[kind]['log10_shared']:.2f} shared, "
              f"10^{found[kind]['log10_each']:.2f} each, {found[kind]['trials']} trials")
    path = circuit_file(depth)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"circuit": circuit, "paths": found}) + "\n")


def random_bits(count, n_qubits, seed):
    """`count` different bit strings."""
    rng = np.random.default_rng(seed)
    numbers = rng.choice(1 << n_qubits, size=count, replace=False)
    return [f"{number:0{n_qubits}b}" for number in numbers]


def _requests(stubs, amplitude, path_ssa, bits, dtype, threads, expected_sets):
    """The frames of one stream: the header, then each amplitude's vectors."""
    plan, pb = stubs.plan_pb2, stubs.contraction_pb2
    dtype_number = getattr(stubs.tensor_pb2, "DATA_TYPE_" + dtype.upper())
    network = plan.Network()
    for k, indices in enumerate(amplitude.network.inputs):
        operand = network.operands.add(indices=indices)
        operand.spec.dtype = dtype_number
        operand.spec.shape.extend(amplitude.network.shape(k))
        if k < amplitude.first_vector:
            operand.inline_data = amplitude.arrays[k].astype(dtype).tobytes()
        else:
            operand.varying = True
    header = pb.ContractHeader(network=network, expected_sets=expected_sets)
    if path_ssa is not None:
        header.path.path.format = plan.PATH_FORMAT_SSA
        header.path.path.steps.extend(plan.PathStep(operands=pair) for pair in path_ssa)
    header.execution.threads = threads
    frames = [pb.ContractRequest(header=header)]
    vectors = [vector.tobytes() for vector in np.eye(2, dtype=dtype)]
    for number, string in enumerate(bits):
        frame = pb.ContractRequest()
        frame.operand_set.set = number
        for qubit, bit in enumerate(string):
            frame.operand_set.operands.add(operand=amplitude.first_vector + qubit,
                                           data=vectors[int(bit)])
        frames.append(frame)
    return frames


def _stream(stubs, server, frames, dtype):
    """Sends the frames; returns (seconds, amplitudes in order, report, sets together by result)."""
    stub = stubs.contraction_pb2_grpc.ContractionServiceStub(server.channel)
    values, together, report = [], [], None
    start = time.perf_counter()
    for frame in stub.Contract(iter(frames), timeout=_TIMEOUT_SECONDS):
        kind = frame.WhichOneof("frame")
        if kind == "result":
            if frame.result.set != len(values):
                raise BenchError(f"result {frame.result.set} came as number {len(values)}")
            values.append(np.frombuffer(frame.result.inline_data, dtype)[0])
            together.append(frame.result.report.sets_together)
        elif kind == "report":
            report = frame.report
    return time.perf_counter() - start, np.array(values), report, together


def measure_tenon(service, amplitude, path_ssa, bits, options, expected_sets):
    """The best of the warm rounds on a fresh server; the first stream is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        server = tenond.Tenond(service.binary, folder, f"--threads={options.threads}",
                               env=environment(options.threads))
        try:
            server.wait_until_ready(service.stubs)
            frames = _requests(service.stubs, amplitude, path_ssa, bits, options.dtype,
                               options.threads, expected_sets)
            rounds = [_stream(service.stubs, server, frames, options.dtype)
                      for _ in range(1 + options.rounds)][1:]
        finally:
            server.stop()
    seconds, values, report, together = min(rounds, key=lambda one: one[0])
    shared = report.plan.shared_flops
    return {
        "seconds": seconds, "rounds": [one[0] for one in rounds], "values": values,
        "sets": report.sets, "stacks": sum(1 / n for n in together),
        "sets_together": max(together), "shared_flops": shared,
        "set_flops": report.plan.flops - shared, "flops_run": report.flops,
        "setup_seconds": report.timing.setup_seconds,
        "execution_seconds": report.timing.execution_seconds,
        "planned_bytes": report.memory.planned_peak_bytes,
    }


def measure_peer(options, circuit, path_ssa, fold, bits, sets):
    """The peer on a sample, scaled to all; measured again when other work disturbed it."""
    for _ in range(1 + options.retries):
        answer = peer(options, kind="run", path_ssa=path_ssa, fold=fold, bits=bits,
                      dtype=options.dtype, **circuit)
        if answer["foreign_processors"] <= timing.DISTURBANCE:
            break
    each = statistics.median(answer["seconds"])
    values = np.array(answer["values"]) @ np.array([1, 1j])
    return {"setup_seconds": answer["setup_seconds"], "each_seconds": each, "sample": len(bits),
            "seconds": answer["setup_seconds"] + sets * each, "values": values,
            "foreign_processors": answer["foreign_processors"], "versions": answer["versions"]}


def check(tenon, peers, dtype):
    """The largest difference from the peers' amplitudes over the largest of them."""
    worst = 0.0
    for figures in peers.values():
        expected = figures["values"]
        difference = np.max(np.abs(tenon["values"][:len(expected)] - expected))
        worst = max(worst, float(difference / np.max(np.abs(expected))))
    if not worst <= _TOLERANCE[dtype]:
        raise BenchError(f"amplitudes differ by {worst:.2g}, allowed is {_TOLERANCE[dtype]}")
    return worst


def measure(service, options, depth):
    data = json.loads(circuit_file(depth).read_text())
    circuit = {key: data["circuit"][key] for key in ("rows", "cols", "depth", "seed")}
    n_qubits = circuit["rows"] * circuit["cols"]
    amplitude = circuits.amplitude_network(circuit_file(depth).stem, n_qubits,
                                           circuits.random_circuit(**circuit))
    bits = random_bits(options.sets, n_qubits, depth)
    paths = {kind: plan["path_ssa"] for kind, plan in data["paths"].items()}
    tenon = measure_tenon(service, amplitude, paths["many"], bits, options, options.sets)
    peers = {name: measure_peer(options, circuit, paths[path], fold, bits[:options.sample],
                                options.sets)
             for name, (path, fold) in _PEERS.items()}
    entry = {"depth": depth, "tensors": len(amplitude.network.inputs), "sets": options.sets,
             "dtype": options.dtype, "difference": check(tenon, peers, options.dtype),
             "tenon": tenon, "peers": peers}
    if options.others:
        sample = bits[:options.sample]
        entry["others"] = {
            "one by one, path for one": measure_tenon(service, amplitude, paths["one"], sample,
                                                      options, expected_sets=1),
            "stacked, path for one": measure_tenon(service, amplitude, paths["one"], bits, options,
                                                   expected_sets=options.sets),
        }
    return entry


def describe(entry):
    """Lines for people."""
    tenon, sets = entry["tenon"], entry["sets"]
    lines = [f"depth {entry['depth']}, {entry['tensors']} tensors, {sets} amplitudes, "
             f"{entry['dtype']}; largest difference {entry['difference']:.1e}",
             f"  Tenon             {tenon['seconds']:8.3f} s  "
             f"{1e3 * tenon['seconds'] / sets:8.3f} ms each; shared {tenon['shared_flops']:.3g}, "
             f"each {tenon['set_flops']:.3g} multiply-adds; up to {tenon['sets_together']} sets "
             f"together in {tenon['stacks']:.0f} runs; setup {tenon['setup_seconds']:.3f} s, "
             f"planned {tenon['planned_bytes'] / 2**20:.0f} MiB"]
    for name, figures in entry["peers"].items():
        lines.append(
            f"  cotengra {name:13s}{figures['seconds']:8.3f} s  "
            f"{1e3 * figures['each_seconds']:8.3f} ms each (median of {figures['sample']}) and "
            f"{figures['setup_seconds']:.3f} s once; {figures['seconds'] / tenon['seconds']:.1f} "
            f"times as long; {figures['foreign_processors']:.2f} processors did other work")
    for name, figures in entry.get("others", {}).items():
        lines.append(f"  Tenon {name}: {1e3 * figures['seconds'] / figures['sets']:.3f} ms each, "
                     f"shared {figures['shared_flops']:.3g}, each {figures['set_flops']:.3g}")
    best = min(figures["seconds"] for figures in entry["peers"].values())
    lines.append(f"  {best / tenon['seconds']:.1f} times as fast as the quickest of cotengra's")
    return "\n".join(lines)


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--depths", type=lambda text: [int(part) for part in text.split(",")], default=[10, 12])
    add("--sets", type=int, default=1000, help="amplitudes (default: 1000)")
    add("--sample", type=int, default=10, help="amplitudes that the peer is timed on (default: 10)")
    add("--dtype", choices=_TOLERANCE, default="complex64")
    add("--threads", type=int, default=2, help="of both sides (default: 2)")
    add("--rounds", type=int, default=2, help="warm streams; the quickest counts (default: 2)")
    add("--retries", type=int, default=2,
        help="times that a peer is measured again because other work took more than "
             f"{timing.DISTURBANCE} processors meanwhile (default: 2)")
    add("--others", action="store_true",
        help="time Tenon along the path for one amplitude too, one by one and stacked")
    add("--server-binary", type=pathlib.Path, default=ROOT / "build" / "server" / "tenond")
    add("--python", type=pathlib.Path, help="interpreter that has the peers",
        default=ROOT / "tests" / "bench" / ".venv" / "bin" / "python")
    add("--output", type=pathlib.Path, metavar="JSON", help="write every figure there")
    add("--plan", type=float, metavar="SECONDS",
        help="search the paths anew, so long for each, and write tests/data/circuits")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    try:
        if options.plan:
            for depth in options.depths:
                plan_circuit(options, depth)
            return 0
        entries = []
        with Service(options.server_binary, options.threads) as service:
            for depth in options.depths:
                entries.append(measure(service, options, depth))
                print(describe(entries[-1]), flush=True)
        if options.output:
            host = {"machine": machine.describe(), "commit": machine.commit(),
                    "date": machine.date(), "threads": options.threads}
            options.output.write_text(json.dumps({"host": host, "entries": entries}, indent=1,
                                                 default=lambda array: [str(v) for v in array]))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
