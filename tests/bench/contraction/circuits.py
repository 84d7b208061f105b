"""Random quantum circuits on a grid of qubits, as tensor networks of their amplitudes.

Needs NumPy alone. A qubit's index is 2 long and takes the values 0 and 1; qubit (r, c) of an R x C
grid is number r * C + c, and bit strings are written in that order.
"""

import dataclasses
import math

import numpy as np

from corpus import Network

CYCLE = "ABCDCDAB"
_ROOT_HALF = math.sqrt(0.5)
# The square roots of the Paulis X and Y and of W = (X + Y) / sqrt(2).
ONE_QUBIT = {
    "sqrt_x": _ROOT_HALF * np.array([[1, -1j], [-1j, 1]]),
    "sqrt_y": _ROOT_HALF * np.array([[1, -1], [1, 1]], complex),
    "sqrt_w": _ROOT_HALF * np.array([[1, -np.sqrt(1j)], [np.sqrt(-1j), 1]]),
}
# Rows and columns are |00>, |01>, |10>, |11>; rows are the output.
TWO_QUBIT = {
    # fSim(pi/2, pi/6): an iSWAP with a conditional phase.
    "fsim": np.array([[1, 0, 0, 0], [0, 0, -1j, 0], [0, -1j, 0, 0],
                      [0, 0, 0, np.exp(-1j * math.pi / 6)]]),
    "cz": np.diag([1, 1, 1, -1]).astype(complex),
}


@dataclasses.dataclass(frozen=True)
class Gate:
    """`matrix` on `qubits`, the first of which is the more significant bit of rows and columns."""
    qubits: tuple
    matrix: np.ndarray


def _bonds(rows, cols, pattern):
    """Pairs of neighbours that a layer couples: A, B down the columns, C, D along the rows."""
    down = pattern in "AB"
    parity = int(pattern in "BD")
    for r in range(rows - down):
        for c in range(cols - (not down)):
            if (r + c) % 2 == parity:
                yield r * cols + c, (r + down) * cols + c + (not down)


def random_circuit(rows, cols, depth, seed, two_qubit="fsim"):
    """The gates of a circuit of `depth` cycles, in order.

    A cycle is a one-qubit gate on every qubit, drawn at random but never the same twice running on
    a qubit, and the two-qubit gates of its pattern; one more layer of one-qubit gates ends it.
    """
    rng = np.random.default_rng(seed)
    names = list(ONE_QUBIT)
    last = [None] * (rows * cols)
    gates = []
    for cycle in range(depth + 1):
        for qubit in range(rows * cols):
            last[qubit] = rng.choice([name for name in names if name != last[qubit]])
            gates.append(Gate((qubit,), ONE_QUBIT[last[qubit]]))
        if cycle < depth:
            for pair in _bonds(rows, cols, CYCLE[cycle % len(CYCLE)]):
                gates.append(Gate(pair, TWO_QUBIT[two_qubit]))
    return gates


@dataclasses.dataclass
class _Tensor:
    indices: list
    array: np.ndarray


def _raw_network(n_qubits, gates):
    """Input vectors |0> and gates as tensors, and the index in which each qubit ends."""
    wires = [f"q{qubit}_0" for qubit in range(n_qubits)]
    tensors = [_Tensor([wire], np.array([1, 0], complex)) for wire in wires]
    count = [0] * n_qubits
    for gate in gates:
        before = [wires[qubit] for qubit in gate.qubits]
        for qubit in gate.qubits:
            count[qubit] += 1
            wires[qubit] = f"q{qubit}_{count[qubit]}"
        after = [wires[qubit] for qubit in gate.qubits]
        tensors.append(_Tensor(after + before, gate.matrix.reshape((2,) * (2 * len(after)))))
    return tensors, wires


def _join(a, b):
    """The contraction of two tensors over all indices that they share."""
    shared = [index for index in a.indices if index in b.indices]
    kept = [index for index in a.indices + b.indices if index not in shared]
    array = np.tensordot(a.array, b.array, ([a.indices.index(index) for index in shared],
                                            [b.indices.index(index) for index in shared]))
    return _Tensor(kept, array)


def _absorb_small(tensors):
    """Contracts neighbours whose product has no more indices than the larger of the two: input
    vectors, one-qubit gates and what becomes like them, in the order in which they stand."""
    tensors = dict(enumerate(tensors))
    holders = {}
    for key, tensor in tensors.items():
        for index in tensor.indices:
            holders.setdefault(index, set()).add(key)
    waiting = list(tensors)
    while waiting:
        key = waiting.pop(0)
        if key not in tensors:
            continue
        small = tensors[key]
        neighbours = sorted(set().union(*(holders[index] for index in small.indices)) - {key})
        for other in neighbours:
            joined = _join(small, tensors[other])
            if len(joined.indices) > max(len(small.indices), len(tensors[other].indices)):
                continue
            for gone in (key, other):
                for index in tensors[gone].indices:
                    holders[index].discard(gone)
            del tensors[key]
            tensors[other] = joined
            for index in joined.indices:
                holders[index].add(other)
            waiting.append(other)
            break
    return [tensors[key] for key in sorted(tensors)]


@dataclasses.dataclass(frozen=True)
class AmplitudeNetwork:
    """The network of one amplitude: `arrays` are the gates, then one output vector for each qubit.

    Operand `first_vector + q` is qubit q's output vector: contracted with |b> it projects on bit b.
    `arrays` has the gates alone, complex128.
    """
    network: Network
    arrays: list
    first_vector: int

    def vectors(self, bits, dtype="complex128"):
        """The output vectors of one bit string, a sequence of 0 and 1."""
        return [np.eye(2, dtype=dtype)[bit] for bit in bits]


def amplitude_network(name, n_qubits, gates):
    """The simplified network of the circuit's amplitudes, without a path."""
    tensors, wires = _raw_network(n_qubits, gates)
    tensors = _absorb_small(tensors)
    inputs = [tensor.indices for tensor in tensors] + [[wire] for wire in wires]
    network = Network(
        path="", name=name, dtype="complex64", inputs=inputs, output=[],
        size_dict={index: 2 for indices in inputs for index in indices},
        path_ssa=[], sliced=[], nslices=1, flops=0.0, seed=0, scales=[])
    return AmplitudeNetwork(network, [tensor.array for tensor in tensors], len(tensors))


def statevector(n_qubits, gates):
    """All amplitudes of a circuit that starts in |0...0>, one axis a qubit, by applying the gates
    one by one to the whole state."""
    state = np.zeros((2,) * n_qubits, complex)
    state[(0,) * n_qubits] = 1
    for gate in gates:
        k = len(gate.qubits)
        matrix = gate.matrix.reshape((2,) * (2 * k))
        state = np.tensordot(matrix, state, (range(k, 2 * k), gate.qubits))
        state = np.moveaxis(state, range(k), gate.qubits)
    return state
