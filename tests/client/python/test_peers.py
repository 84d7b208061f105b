"""Inside opt_einsum, cotengra and quimb: the libraries' own examples, with their own values."""

import cotengra as ctg
import numpy as np
import opt_einsum as oe
import opt_einsum.testing
import pytest
import quimb as qu
import quimb.tensor as qtn

import tenon

NUMBERS = np.random.default_rng(7)


@pytest.fixture
def optimizer(client):
    return tenon.Optimizer(client, max_trials=4, seed=1)


# opt_einsum


def test_opt_einsums_first_example(optimizer):
    dim = 6
    pi = NUMBERS.random((dim, dim))
    c = NUMBERS.random((dim, dim, dim, dim))
    text = "pi,qj,ijkl,rk,sl->pqrs"
    arrays = (pi, pi, c, pi, pi)
    np.testing.assert_allclose(oe.contract(text, *arrays, optimize=optimizer),
                               oe.contract(text, *arrays))
    path, info = oe.contract_path(text, *arrays, optimize=optimizer)
    assert len(path) == 4 and info.opt_cost < info.naive_cost


def test_opt_einsums_random_networks(optimizer):
    for seed in range(4):
        eq, shapes = oe.testing.rand_equation(12, 3, n_out=2, d_max=3, seed=seed)
        arrays = [NUMBERS.random(shape) for shape in shapes]
        np.testing.assert_allclose(oe.contract(eq, *arrays, optimize=optimizer),
                                   oe.contract(eq, *arrays))


def test_opt_einsums_expression(optimizer):
    eq = "ab,bc,cd,de->ae"
    shapes = [(3, 4), (4, 5), (5, 6), (6, 2)]
    arrays = [NUMBERS.random(shape) for shape in shapes]
    np.testing.assert_allclose(
        oe.contract_expression(eq, *shapes, optimize=optimizer)(*arrays),
        np.linalg.multi_dot(arrays))


def test_a_path_carries_no_slices(client):
    text, arrays = "ab,bc,cd,de,ea->", [NUMBERS.random((8, 8)) for _ in range(5)]
    tight = tenon.Optimizer(client, max_trials=4, target_size=8)
    with pytest.raises(NotImplementedError, match="slices"):
        oe.contract(text, *arrays, optimize=tight)
    roomy = tenon.Optimizer(client, max_trials=4, target_size=64)
    np.testing.assert_allclose(oe.contract(text, *arrays, optimize=roomy), np.einsum(text, *arrays))
    with pytest.raises(tenon.Unsupported):
        oe.contract(text, *arrays, optimize=tenon.Optimizer(client, max_trials=4), memory_limit=8)
    oe.contract(text, *arrays, optimize=tenon.Optimizer(client, max_trials=4), memory_limit=64)


# cotengra


def lattice(seed=42):
    """The network of cotengra's "advanced" page, smaller."""
    inputs, output, shapes, sizes = ctg.utils.lattice_equation([4, 4], d_max=3, seed=seed)
    return inputs, output, sizes, [NUMBERS.random(shape) for shape in shapes]


def test_cotengras_functions(optimizer):
    inputs, output, sizes, arrays = lattice()
    expected = ctg.array_contract(arrays, inputs, output, optimize="greedy")
    np.testing.assert_allclose(
        ctg.array_contract(arrays, inputs, output, optimize=optimizer), expected)
    path = ctg.array_contract_path(inputs, output, sizes, optimize=optimizer)
    np.testing.assert_allclose(ctg.array_contract(arrays, inputs, output, optimize=path), expected)
    tree = ctg.array_contract_tree(inputs, output, sizes, optimize=optimizer)
    np.testing.assert_allclose(tree.contract(arrays), expected)
    a, b, c = (NUMBERS.random((4, 4)) for _ in range(3))
    np.testing.assert_allclose(ctg.einsum("ab,bc,cd->da", a, b, c, optimize=optimizer),
                               (a @ b @ c).T)


def test_trees_have_the_slices(client):
    inputs, output, sizes, arrays = lattice()
    sliced = tenon.Optimizer(client, max_trials=4, target_size=2**4)
    tree = ctg.array_contract_tree(inputs, output, sizes, optimize=sliced)
    assert tree.nslices > 1 and tree.max_size() <= 2**4
    expected = ctg.array_contract(arrays, inputs, output, optimize="greedy")
    np.testing.assert_allclose(tree.contract(arrays), expected)
    np.testing.assert_allclose(client.contract_tree(tree, arrays), expected)


def test_costs_agree_with_cotengras(client):
    inputs, output, sizes, _ = lattice()
    tree, info = client.tree(inputs, output, sizes, max_trials=4, target_size=2**5,
                             return_info=True)
    unsliced = ctg.ContractionTree.from_path(inputs, output, sizes, ssa_path=info["path"])
    assert unsliced.total_flops(log=10) == pytest.approx(info["log10_flops"])
    assert unsliced.max_size(log=2) == pytest.approx(info["log2_max_size"])
    assert tree.max_size(log=2) == pytest.approx(info["sliced_log2_max_size"])
    assert tree.total_flops(log=10) == pytest.approx(info["sliced_log10_flops_total"])
    assert np.log2(tree.nslices) == pytest.approx(info["log2_n_slices"])
    assert [info["symbol_of"][name] for name in inputs[0]] == list(
        ctg.utils.get_symbol_map(inputs)[name] for name in inputs[0])


def test_a_tree_of_cotengra_runs_on_the_server(client):
    inputs, output, sizes, arrays = lattice()
    tree = ctg.array_contract_tree(inputs, output, sizes, optimize="greedy", canonicalize=False)
    sliced = tree.slice(target_size=2**5)
    assert sliced.nslices > 1
    value, report = client.contract_tree(sliced, arrays, return_info=True)
    np.testing.assert_allclose(value, tree.contract(arrays))
    assert report.plan.slices == sliced.nslices
    assert [tuple(step.operands) for step in report.plan.path.steps] == list(sliced.get_ssa_path())
    np.testing.assert_allclose(
        client.contract(inputs, output, sizes, arrays, optimize=sliced), value)
    mantissa, exponent = client.contract_tree(sliced, arrays, strip_exponent=True)
    theirs, theirs_exponent = sliced.contract(arrays, strip_exponent=True)
    np.testing.assert_allclose(mantissa * 10**exponent, theirs * 10**theirs_exponent)


def test_output_slices_and_projections_of_a_tree(client):
    arrays = [NUMBERS.random((3, 4)), NUMBERS.random((4, 5)), NUMBERS.random((5, 3))]
    inputs, output = [("a", "b"), ("b", "c"), ("c", "d")], ("a", "d")
    sizes = {"a": 3, "b": 4, "c": 5, "d": 3}
    tree = ctg.ContractionTree.from_path(inputs, output, sizes, ssa_path=[(0, 1), (2, 3)])
    for name, value in (("a", None), ("c", None), ("b", 2), ("d", 1)):
        tree.remove_ind_(name, project=value)
        np.testing.assert_allclose(client.contract_tree(tree, arrays), tree.contract(arrays))


def test_a_tree_for_another_network(client):
    tree = ctg.ContractionTree.from_path([("x", "y"), ("y", "z")], ("x",),
                                         {"x": 2, "y": 2, "z": 2}, ssa_path=[(0, 1)])
    with pytest.raises(tenon.InvalidRequest, match="another network"):
        client.contract([(0, 1), (0, 2)], [1], None, [np.eye(2)] * 2, optimize=tree)
    with pytest.raises(tenon.InvalidRequest):
        client.contract_tree(tree, [np.eye(2)])
    with pytest.raises(tenon.InvalidRequest, match="path"):
        client.contract_tree(tree, [np.eye(2)] * 2, path=[(0, 1)])
    with pytest.raises(tenon.InvalidRequest, match="complete"):
        client.contract_tree(ctg.ContractionTree([("x",), ("x",)], (), {"x": 2}), [np.ones(2)] * 2)
    with pytest.raises(tenon.Unsupported):
        client.contract_tree("tree", [])
    # Letters that swap the names of the caller still mean what the tree means.
    tree = ctg.array_contract_tree([("b", "a"), ("a", "b")], (), {"a": 2, "b": 3},
                                   optimize=[(0, 1)])
    tree.remove_ind_("a")  # the caller's "b"
    a = NUMBERS.random((3, 2))
    value, report = client.contract([("b", "a"), ("a", "b")], (), None, [a, a.T], optimize=tree,
                                    return_info=True)
    assert value == pytest.approx((a * a).sum()) and report.plan.slices == 3


def test_a_hyper_optimizer_of_cotengra_plans_for_the_server(client):
    inputs, output, sizes, arrays = lattice()
    hyper = ctg.HyperOptimizer(methods=["greedy"], max_repeats=4, parallel=False, progbar=False,
                               slicing_opts={"target_size": 2**6})
    np.testing.assert_allclose(client.contract(inputs, output, sizes, arrays, optimize=hyper),
                               ctg.array_contract(arrays, inputs, output, optimize="greedy"))


# quimb


def ghz(n=6):
    """The circuit of quimb's first tutorial."""
    circuit = qtn.Circuit(n)
    circuit.apply_gate("H", 0)
    for i in range(n - 1):
        circuit.apply_gate("CNOT", i, i + 1)
    return circuit


def test_quimbs_circuit_example(client, optimizer):
    circuit = ghz()
    for bits in ("0" * 6, "1" * 6, "010101"):
        expected = circuit.amplitude(bits)
        assert circuit.amplitude(bits, optimize=optimizer) == pytest.approx(expected)
        network = circuit.amplitude(bits, rehearse="tn")
        assert client.contract(network) == pytest.approx(expected)
    assert circuit.local_expectation(qu.pauli("Z") & qu.pauli("Z"), (0, 1),
                                     optimize=optimizer) == pytest.approx(1)


def test_quimbs_contraction_tree_methods(client):
    network = qtn.TN2D_rand(5, 5, D=2, seed=3)
    sliced = tenon.Optimizer(client, max_trials=4, target_size=2**5)
    expected = network.contract()
    assert network.contract(optimize=sliced) == pytest.approx(expected)
    tree = network.contraction_tree(sliced)
    assert tree.nslices > 1 and network.contraction_width(sliced) <= 5
    assert network.contraction_cost(sliced) == pytest.approx(tree.contraction_cost())
    plain = tenon.Optimizer(client, max_trials=4)
    assert len(network.contraction_path(plain)) == 24
    assert network.contraction_info(plain).opt_cost > 0
    with pytest.raises(NotImplementedError):
        network.contraction_path(sliced)


def test_a_trees_letters_are_those_of_quimb(client):
    """quimb and cotengra compute with letters only, whatever the names are."""
    network = qtn.TN2D_rand(4, 4, D=2, seed=3)
    expected = network.contract()
    sizes = {name: network.ind_size(name) for name in network.ind_map}
    plan = client.plan([tensor.inds for tensor in network], [], sizes, max_trials=4, target_size=8)
    assert plan.sliced and set(plan.sliced) <= set(sizes)
    tree, info = client.tree([tensor.inds for tensor in network], [], sizes, max_trials=4,
                             target_size=8, return_info=True)
    for made in (tree, plan.tree()):
        assert made.nslices == plan.slices
        assert list(made.sliced_inds) == [info["symbol_of"][name] for name in plan.sliced]
        arrays = [tensor.data for tensor in network]
        assert made.contract(arrays) == pytest.approx(expected)
        assert network.contract(optimize=made) == pytest.approx(expected)
        assert client.contract(network, optimize=made) == pytest.approx(expected)
        assert client.contract_tree(made, arrays) == pytest.approx(expected)
    tree = client.tree(["ba", "ac"], "bc", {"a": 2, "b": 3, "c": 4}, target_size=4,
                       allow_output_slicing=True)
    assert [tuple(term) for term in tree.inputs] == [("b", "a"), ("a", "c")] and tree.sliced_inds


def test_the_same_network_is_planned_once(client, monkeypatch):
    network = qtn.TN2D_rand(3, 4, D=2, seed=5)
    optimizer = tenon.Optimizer(client, max_trials=2)
    network.contract(optimize=optimizer)
    monkeypatch.setattr(client, "plan", None)
    network.contract(optimize=optimizer)


def test_a_network_goes_in_directly(client):
    """The norm of a random matrix product state, and of a lattice."""
    state = qtn.MPS_rand_state(20, bond_dim=7, seed=1)
    overlap = state.H & state
    assert client.contract(overlap) == pytest.approx(overlap.contract())
    lattice = qtn.TN2D_rand(4, 4, D=3, seed=2)
    value, report = client.contract(lattice, max_trials=4, target_size=3**2, return_info=True)
    assert value == pytest.approx(lattice.contract()) and report.plan.slices > 1
    assert isinstance(value, float)
    tenon.set_default_client(client)
    try:
        assert tenon.contract(lattice) == pytest.approx(value)
    finally:
        tenon.set_default_client(None)


def test_open_indices_give_a_tensor(client):
    state = qtn.MPS_rand_state(5, bond_dim=3, seed=4)
    got, expected = client.contract(state), state.contract()
    assert isinstance(got, qtn.Tensor) and got.inds == expected.inds and got.tags == expected.tags
    np.testing.assert_allclose(got.data, expected.data)
    inds = tuple(reversed(expected.inds))
    got = client.contract(state, output_inds=inds, drop_tags=True)
    assert got.inds == inds and not got.tags
    np.testing.assert_allclose(got.data, state.contract(output_inds=inds).data)
    np.testing.assert_allclose(client.contract(state, inds).data, got.data)
    scalar = client.contract(state.H & state, preserve_tensor=True)
    assert isinstance(scalar, qtn.Tensor) and scalar.inds == ()


def test_exponents_of_a_network(client):
    network = qtn.TN2D_rand(3, 3, D=2, seed=6)
    expected = network.contract()
    stripped = network.copy()
    stripped.equalize_norms_(1.0)
    assert stripped.exponent != 0
    assert client.contract(stripped) == pytest.approx(expected)
    mantissa, exponent = client.contract(stripped, strip_exponent=True)
    assert mantissa * 10**exponent == pytest.approx(expected)
    stripped.exponent = -400.0  # beyond the range of a double
    mantissa, exponent = client.contract(stripped, strip_exponent=True)
    theirs, theirs_exponent = stripped.contract(strip_exponent=True)
    assert exponent + np.log10(abs(mantissa)) == pytest.approx(
        theirs_exponent + np.log10(abs(theirs)))


def test_hyper_indices(client):
    network = qtn.HTN_classical_partition_function_from_edges(
        [(0, 1), (1, 2), (2, 0), (2, 3), (3, 0)], beta=0.4)
    expected = network.contract(output_inds=())
    assert client.contract(network, output_inds=()) == pytest.approx(expected)
    with pytest.raises(ValueError, match="output"):
        client.contract(network)


def test_more_indices_than_letters(client):
    network = qtn.TN2D_rand(7, 7, D=2, seed=8)
    assert len(network.ind_map) > 52
    assert client.contract(network, max_trials=4) == pytest.approx(network.contract())
    assert network.contract(optimize=tenon.Optimizer(client, max_trials=4)) == pytest.approx(
        network.contract())


def test_numbers_are_real_only_where_they_are(client):
    t = qtn.Tensor(np.array([1 + 1e-15j, 1]), inds="a")
    assert isinstance(client.contract(t & qtn.Tensor(np.ones(2), inds="a")), float)
    t = qtn.Tensor(np.array([1 + 1j, 1]), inds="a")
    assert client.contract(t & qtn.Tensor(np.ones(2), inds="a")) == 2 + 1j


def test_arrays_besides_a_network(client):
    with pytest.raises(tenon.InvalidRequest):
        client.contract(ghz(3).psi, None, None, [np.ones(2)])


def test_unknown_options_of_the_optimizer():
    with pytest.raises(TypeError, match="max_tiem"):
        tenon.Optimizer(max_tiem=1)


def test_names_that_look_alike_stay_apart(client):
    a, b = NUMBERS.random((2, 3)), NUMBERS.random((3, 4))
    got = client.contract([(1, "1"), ("1", "")], [1, ""], None, [a, b])
    np.testing.assert_allclose(got, a @ b)
    plan = client.plan([(1, "1"), ("1", "")], [1, ""], {1: 2, "1": 3, "": 4}, target_size=4,
                       allow_output_slicing=True)
    assert set(plan.sliced) <= {1, "1", ""} and plan.slices > 1
    np.testing.assert_allclose(
        client.contract([(1, "1"), ("1", "")], [1, ""], None, [a, b], plan=plan), a @ b)
