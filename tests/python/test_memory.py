"""The memory a fresh server really takes for one large contraction stays within its plan."""

import collections
import json
import pathlib
import re

import numpy as np
import pytest

from tenond import ROOT
from test_contraction import call, chunks, header, to_array

SLACK_BYTES = 32 << 20
# Messages on their way, which the transport and the allocator hold.
WIRE_BYTES = 32 << 20


def status_bytes(pid, field):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE).group(1)) * 1024


class ResidentPeak:
    """Bytes that a server takes beyond what it holds now, at their peak; set at the end."""

    def __init__(self, server):
        self.pid, self.bytes = server.process.pid, None

    def __enter__(self):
        self.idle = status_bytes(self.pid, "VmRSS")
        pathlib.Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # resets VmHWM
        return self

    def __exit__(self, *error):
        self.bytes = status_bytes(self.pid, "VmHWM") - self.idle


def check_peak(memory, taken, slack=SLACK_BYTES):
    print(f"planned {memory.planned_peak_bytes >> 20} MiB, measured "
          f"{memory.measured_peak_bytes >> 20} MiB, resident {taken.bytes >> 20} MiB")
    assert memory.planned_peak_bytes > 64 << 20
    assert memory.measured_peak_bytes <= memory.planned_peak_bytes
    assert taken.bytes <= memory.planned_peak_bytes + slack


def load_network(name):
    return json.loads((ROOT / "tests" / "data" / "networks" / f"{name}.json").read_text())


def deeper_slices(network, target_log2):
    """The network's sliced indices and more, until no result exceeds 2^target_log2 elements."""
    tensors, holders = [set(operand) for operand in network["inputs"]], collections.Counter()
    for tensor in tensors:
        holders.update(tensor)
    results = []
    for left, right in network["path_ssa"]:
        holders.subtract(tensors[left])
        holders.subtract(tensors[right])
        tensors.append({index for index in tensors[left] | tensors[right]
                        if holders[index] > 0 or index in network["output"]})
        holders.update(tensors[-1])
        results.append(tensors[-1])
    sliced = list(network["sliced"])
    while True:
        large = [r - set(sliced) for r in results]
        large = [r for r in large
                 if sum(np.log2(network["size_dict"][i]) for i in r) > target_log2]
        if not large:
            return sliced
        uses = {index: sum(index in r for r in large) for r in large for index in r}
        sliced.append(max(sorted(uses), key=uses.get))


def plan_of(stubs, network, sliced):
    pb = stubs.plan_pb2
    return pb.ExplicitPlan(
        path=pb.ContractionPath(format=pb.PATH_FORMAT_SSA,
                                steps=[pb.PathStep(operands=s) for s in network["path_ssa"]]),
        sliced_indices=sliced)


@pytest.fixture(scope="module")
def network():
    return load_network("rqc_fsim_5x5_m14_amp")


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_resident_memory_stays_within_the_plan(stubs, start_server, network, workers):
    rng = np.random.default_rng(3)
    arrays = []
    for indices in network["inputs"]:
        shape = [network["size_dict"][i] for i in indices]
        values = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        arrays.append((values / 2).astype("complex64"))
    server = start_server(f"--threads={workers}", "--memory_budget=8GiB")
    server.wait_until_ready(stubs)
    # Two slices of 2^24 elements, or more, of 2^22, where more than two workers are to run.
    sliced = deeper_slices(network, 25 if workers <= 2 else 22)
    request = header(stubs, network["inputs"], network["output"], arrays,
                     path=plan_of(stubs, network, sliced),
                     execution=stubs.contraction_pb2.ContractExecution(threads=workers))
    with ResidentPeak(server) as taken:
        single = call(stubs, server, [request], timeout=300)[0].single
    assert np.isfinite(to_array(single.results[0].spec, single.results[0].inline_data, stubs)).all()
    assert single.report.memory.plan.workers == workers
    check_peak(single.report.memory, taken)


@pytest.mark.parametrize("result_dtype", ["FLOAT32", "FLOAT64"])
def test_tensors_on_the_wire_are_in_the_plan(stubs, start_server, result_dtype):
    server = start_server("--threads=2", "--memory_budget=8GiB")
    server.wait_until_ready(stubs)
    a, b = np.ones((4096, 2048), "float32"), np.ones((2048, 4096), "float32")
    options = stubs.contraction_pb2.ContractResultOptions(
        dtype=stubs.tensor_pb2.DataType.Value("DATA_TYPE_" + result_dtype))
    frames = [header(stubs, [["i", "j"], ["j", "k"]], ["i", "k"], [a, b], inline=False,
                     result=options)]
    frames += [*chunks(stubs, 0, a), *chunks(stubs, 1, b)]
    with ResidentPeak(server) as taken:
        answers = call(stubs, server, frames, timeout=300)
    assert sum(len(f.chunk.data) for f in answers) == 4096 ** 2 * (4 if "32" in result_dtype else 8)
    check_peak(answers[-1].report.memory, taken, SLACK_BYTES + WIRE_BYTES)
