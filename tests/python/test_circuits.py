"""The circuit generator of the benchmarks: its networks against a simulation of the whole state."""

import itertools
import json
import sys

import numpy as np
import pytest

from tenond import ROOT

sys.path.insert(0, str(ROOT / "tests" / "bench" / "contraction"))
import amplitudes  # noqa: E402
import circuits  # noqa: E402


def contract(amplitude, bits):
    """The network contracted pair by pair in the order in which tensors stand."""
    arrays = [*amplitude.arrays, *amplitude.vectors(bits)]
    tensors = [circuits._Tensor(list(indices), array)
               for indices, array in zip(amplitude.network.inputs, arrays)]
    # Vectors first: they make the neighbours small.
    done = tensors[0]
    rest = tensors[1:]
    while rest:
        shared = [len(set(done.indices) & set(tensor.indices)) - len(tensor.indices)
                  for tensor in rest]
        done = circuits._join(done, rest.pop(int(np.argmax(shared))))
    return complex(done.array)


@pytest.mark.parametrize("two_qubit", ["fsim", "cz"])
@pytest.mark.parametrize("depth", [1, 4, 9])
def test_amplitudes_of_a_small_circuit_are_those_of_its_state(two_qubit, depth):
    gates = circuits.random_circuit(3, 3, depth, seed=5, two_qubit=two_qubit)
    state = circuits.statevector(9, gates)
    assert np.vdot(state, state) == pytest.approx(1)
    amplitude = circuits.amplitude_network("small", 9, gates)
    for bits in itertools.product((0, 1), repeat=9):
        assert contract(amplitude, bits) == pytest.approx(complex(state[bits]), abs=1e-14)


def test_gates_are_unitary_and_act_where_the_pattern_says():
    for matrix in (*circuits.ONE_QUBIT.values(), *circuits.TWO_QUBIT.values()):
        assert np.allclose(matrix @ matrix.conj().T, np.eye(len(matrix)))
    for name, pauli in (("sqrt_x", [[0, 1], [1, 0]]), ("sqrt_y", [[0, -1j], [1j, 0]])):
        square = circuits.ONE_QUBIT[name] @ circuits.ONE_QUBIT[name]
        phase = square[0, 1] / pauli[0][1]
        assert np.allclose(square, phase * np.array(pauli))
    # On 3 x 3: every bond exactly once in A, B, C, D, none twice in a layer.
    layers = {pattern: list(circuits._bonds(3, 3, pattern)) for pattern in "ABCD"}
    assert layers["A"] == [(0, 3), (2, 5), (4, 7)]
    assert layers["D"] == [(1, 2), (3, 4), (7, 8)]
    bonds = [bond for layer in layers.values() for bond in layer]
    assert len(bonds) == len(set(bonds)) == 12
    for layer in layers.values():
        qubits = [qubit for bond in layer for qubit in bond]
        assert len(qubits) == len(set(qubits))


def test_one_qubit_gates_never_repeat_on_a_qubit():
    last = {}
    for gate in circuits.random_circuit(2, 3, 20, seed=2):
        if len(gate.qubits) == 1:
            assert last.get(gate.qubits) is not gate.matrix
            last[gate.qubits] = gate.matrix


def test_networks_are_the_same_for_a_seed_and_keep_the_output_vectors():
    def network(seed):
        return circuits.amplitude_network("n", 25, circuits.random_circuit(5, 5, 10, seed))
    first, second = network(1), network(1)
    assert first.network == second.network
    assert all(np.array_equal(a, b) for a, b in zip(first.arrays, second.arrays))
    assert any(not np.array_equal(a, b) for a, b in zip(first.arrays, network(2).arrays))
    inputs = first.network.inputs
    assert len(inputs) == first.first_vector + 25
    assert all(len(indices) == 1 for indices in inputs[first.first_vector:])
    # Nothing is left that a neighbour could take up: no vector, no one-qubit gate.
    assert all(len(indices) >= 3 for indices in inputs[:first.first_vector])
    counts = {}
    for index in itertools.chain(*inputs):
        counts[index] = counts.get(index, 0) + 1
    assert set(counts.values()) == {2}


def test_bit_strings_are_different_and_repeat_with_the_seed():
    bits = amplitudes.random_bits(1000, 25, 3)
    assert len(set(bits)) == 1000 and {len(string) for string in bits} == {25}
    assert bits == amplitudes.random_bits(1000, 25, 3)


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "data" / "circuits").glob("*.json")),
                         ids=lambda path: getattr(path, "stem", "none"))
def test_kept_paths_fit_the_circuits_that_are_generated(path):
    data = json.loads(path.read_text())
    circuit = data["circuit"]
    n_qubits = circuit["rows"] * circuit["cols"]
    network = circuits.amplitude_network("n", n_qubits, circuits.random_circuit(**circuit)).network
    for plan in data["paths"].values():
        left = set(range(len(network.inputs)))
        for step, pair in enumerate(plan["path_ssa"]):
            left -= set(pair)
            left.add(len(network.inputs) + step)
        assert len(left) == 1 and len(plan["path_ssa"]) == len(network.inputs) - 1
