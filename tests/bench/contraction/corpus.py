"""Networks of the corpus: files, operands, reference results. Needs NumPy alone."""

import dataclasses
import json
import math
import pathlib

import numpy as np

DTYPES = ("float32", "float64", "complex64", "complex128")
_GOLDEN = 0x9E3779B97F4A7C15
_CHUNK = 1 << 18  # numbers made at once; keeps the generator's temporaries small
_TOLERANCE = {"float32": 1e-3, "complex64": 1e-3, "float64": 1e-9, "complex128": 1e-9}


class BenchError(Exception):
    """Something that the user of the benchmark has to mend."""


@dataclasses.dataclass(frozen=True)
class Network:
    """One network file; the fields are the file's."""
    path: str
    name: str
    dtype: str
    inputs: list
    output: list
    size_dict: dict
    path_ssa: list
    sliced: list
    nslices: int
    flops: float
    seed: int
    scales: list

    def shape(self, tensor):
        return tuple(self.size_dict[index] for index in self.inputs[tensor])

    def output_shape(self):
        return tuple(self.size_dict[index] for index in self.output)

    def real_flops(self, dtype):
        """Real operations of the path, every slice counted in full."""
        return self.flops * (8 if dtype.startswith("complex") else 2)

    def input_bytes(self, dtype):
        elements = sum(math.prod(self.shape(k)) for k in range(len(self.inputs)))
        return elements * np.dtype(dtype).itemsize


def read_network(path):
    """Reads one network file."""
    data = json.loads(pathlib.Path(path).read_text())
    fields = {f.name: data[f.name] for f in dataclasses.fields(Network) if f.name != "path"}
    return Network(path=str(path), **fields)


def exec_networks(folder, only=()):
    """The networks in `folder` that are meant to be executed, by name; `only` restricts them."""
    folder = pathlib.Path(folder)
    networks = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        if isinstance(data, dict) and data.get("role") == "exec":
            networks.append(read_network(path))
    unknown = set(only) - {network.name for network in networks}
    if unknown:
        raise BenchError(f"no network to execute in {folder} is named {', '.join(sorted(unknown))}")
    if not networks:
        raise BenchError(f"no network to execute in {folder}")
    return [network for network in networks if not only or network.name in only]


def read_reference(folder, name):
    """The entry of `name` in the reference results of `folder`."""
    references = json.loads((pathlib.Path(folder) / "reference.json").read_text())
    if name not in references:
        raise BenchError(f"reference.json has no entry '{name}'")
    return references[name]


def _mix64(z):
    """splitmix64's finalizer, in place on an array of uint64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z


def _uniform(base, first, count):
    """Numbers first .. first+count-1 of a tensor's stream, uniform on [-1, 1)."""
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    z *= np.uint64(_GOLDEN)
    z += base
    z = _mix64(z)
    z >>= np.uint64(11)
    u = z.astype(np.float64)
    u *= 2.0**-52
    u -= 1
    return u


def make_operand(network, tensor, dtype):
    """The array of one operand, as the corpus defines it."""
    with np.errstate(over="ignore"):
        base = _mix64(np.array([network.seed], np.uint64)
                      + np.array([tensor + 1], np.uint64) * np.uint64(_GOLDEN))
    array = np.empty(network.shape(tensor), dtype)
    parts = 2 if array.dtype.kind == "c" else 1
    real = array.reshape(-1).view(np.empty(0, dtype).real.dtype)
    scale = network.scales[tensor] / math.sqrt(parts)
    for first in range(0, real.size, _CHUNK):
        count = min(_CHUNK, real.size - first)
        real[first:first + count] = scale * _uniform(base, first, count)
    return array


def make_operands(network, dtype):
    return [make_operand(network, k, dtype) for k in range(len(network.inputs))]


def compare(reference, result):
    """Compares a result with its reference entry.

    Returns (difference, tolerance): the largest difference of the values that the reference tells,
    over its largest absolute value, and what is allowed for the element type. NaN differs by
    infinity.
    """
    result = np.asarray(result)
    entry = reference["complex128" if result.dtype.kind == "c" else "float64"]
    tolerance = _TOLERANCE[result.dtype.name]
    if list(result.shape) != list(entry["shape"]):
        return math.inf, tolerance
    expected = np.array(entry.get("sample_values", entry.get("values")), np.float64)
    if result.dtype.kind == "c":
        expected = expected.reshape(-1, 2) @ np.array([1, 1j])
    positions = entry.get("sample_positions", range(len(expected)))
    found = result.reshape(-1)[list(positions)].astype(np.complex128)
    difference = float(np.max(np.abs(found - expected), initial=0.0))
    difference /= entry["max_abs"] or 1.0
    return (math.inf if math.isnan(difference) else difference), tolerance


def has_reference(reference, dtype):
    return ("complex128" if dtype.startswith("complex") else "float64") in reference
