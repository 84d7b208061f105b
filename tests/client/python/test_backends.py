"""Execution by array libraries on the client: values, devices, refusals, and the fields told."""

import itertools
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest
import torch

import tenon
from tenon import _backends

NUMBERS = np.random.default_rng(11)

# Every field that the founding documents name for a contraction with its report.
FIELDS = {
    "path", "path_format", "preset", "seed", "max_time", "rate_enabled", "slicing_mode",
    "allow_output_slicing", "wall_s", "log10_flops", "log2_max_size", "log2_max_contraction_size",
    "log2_total_size", "log2_read_write", "log2_peak_size", "planner_objective", "flops_weight",
    "read_write_weight", "planner_objective_score_log2", "planner_log2_read_write",
    "planner_log2_total_writes", "sliced", "sliced_legs", "log2_n_slices",
    "sliced_log10_flops_total", "sliced_log2_max_size", "sliced_log2_max_contraction_size",
    "sliced_log2_peak_size", "target_size", "target_log2_size", "memory_target_log2_elements",
    "memory_constraint_metric", "max_intermediate_log2_elements_per_slice", "execution_backend",
    "execution_implementation", "execution_input_prepare_wall_s", "expression_compile_wall_s",
    "execution_setup_wall_s", "execution_dispatch_wall_s", "execution_wall_s",
    "execution_total_host_wall_s", "execution_timing_scope", "dtype", "dtype_itemsize",
    "contraction_memory_estimate_metric", "log2_max_contraction_bytes",
    "estimated_max_contraction_bytes", "sliced_log2_max_contraction_bytes",
    "sliced_estimated_max_contraction_bytes"}


def network(dtype=np.float64):
    """A ring with open legs, a hyperedge, a diagonal and a scalar."""
    inputs = [("a", "b", "x"), ("b", "c", "h"), ("c", "d", "h"), ("d", "a", "h", "y"), ("e", "e"),
              ("e", "z"), ()]
    sizes = {"a": 3, "b": 4, "c": 2, "d": 3, "h": 2, "x": 2, "y": 3, "z": 2, "e": 3}
    arrays = []
    for names in inputs:
        shape = tuple(sizes[name] for name in names)
        value = NUMBERS.standard_normal(shape)
        if np.dtype(dtype).kind == "c":
            value = value + 1j * NUMBERS.standard_normal(shape)
        arrays.append(np.asarray(value, dtype))
    letters = ",".join("".join(names) for names in inputs)
    return inputs, ("y", "x", "z"), sizes, arrays, np.einsum(letters + "->yxz", *arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("backend", ["native", "numpy", "torch"])
def test_values_and_fields(client, backend, dtype):
    inputs, output, sizes, arrays, expected = network(dtype)
    if backend == "torch":
        arrays = [torch.from_numpy(array) for array in arrays]
    value, info = client.contract(inputs, output, sizes, arrays, backend=backend, max_trials=4,
                                  target_size=8, allow_output_slicing=True, return_info=True)
    assert isinstance(value, torch.Tensor if backend == "torch" else np.ndarray)
    np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-4, atol=1e-4)
    info = dict(info)
    assert set(info) == FIELDS
    assert info["execution_backend"] == backend and info["dtype"] == np.dtype(dtype).name
    assert info["dtype_itemsize"] == np.dtype(dtype).itemsize
    assert info["target_size"] == 8 and info["target_log2_size"] == 3 and info["sliced"]
    assert info["sliced_log2_max_size"] <= 3
    assert info["max_intermediate_log2_elements_per_slice"] <= 3
    if backend == "torch":
        assert info["execution_wall_s"] is None
        assert info["execution_timing_scope"] == "external_backend_completion_not_verified"
    else:
        assert info["execution_timing_scope"] == "synchronous_host_wall"
        assert info["execution_wall_s"] == pytest.approx(
            info["execution_setup_wall_s"] + info["execution_dispatch_wall_s"])
    assert info["execution_total_host_wall_s"] == pytest.approx(
        info["execution_input_prepare_wall_s"] + info["execution_setup_wall_s"]
        + info["execution_dispatch_wall_s"])
    if backend != "native":
        assert info["execution_implementation"] == "tenon.sliced_contract_expression"
        assert 0 < info["expression_compile_wall_s"] <= info["execution_setup_wall_s"]


def test_the_figures_are_those_of_the_definitions(client):
    """ArcTN's golden example: F 120, RW 94, score 6136 of the chain 2x4 . 4x8 . 8x3 at its best."""
    arrays = [np.ones((2, 4)), np.ones((4, 8)), np.ones((8, 3))]
    _, info = client.contract(["ab", "bc", "cd"], "ad", None, arrays, backend="numpy",
                              optimize="optimal", return_info=True)
    assert 10**info["log10_flops"] == pytest.approx(120)
    assert 2**info["log2_read_write"] == pytest.approx(94)
    assert 2**info["planner_objective_score_log2"] == pytest.approx(6136)
    assert 2**info["log2_max_contraction_size"] == pytest.approx(32 + 24 + 12)
    assert info["estimated_max_contraction_bytes"] == 68 * 8
    assert 2**info["log2_total_size"] == pytest.approx(12 + 6)
    assert 2**info["log2_max_size"] == pytest.approx(12)
    assert (info["flops_weight"], info["read_write_weight"]) == (1, 64)
    assert info["planner_objective"] == "flops_read_write"
    assert info["execution_implementation"] == "opt_einsum.contract_expression"
    assert info["sliced_legs"] == [] and not info["sliced"]


def test_every_set_of_slices_gives_the_value(client):
    inputs, output, sizes, arrays, expected = network()
    path = [(0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1)]
    names = ["x", "y", "a", "h", "e"]
    for count in range(len(names) + 1):
        for sliced in itertools.combinations(names, count):
            value, info = client.contract(inputs, output, sizes, arrays, backend="numpy", path=path,
                                          sliced=sliced, return_info=True)
            np.testing.assert_allclose(value, expected, atol=1e-12)
            assert len(info["sliced_legs"]) == count


@pytest.mark.parametrize("inputs,output", [
    ([("a", "b")], ("b", "a")), ([("a", "a")], ()), ([("a", "a", "b")], ("b", "a")), ([()], ()),
    ([("a",), ("b",)], ("b", "a"))])
def test_small_forms(client, inputs, output):
    sizes = {"a": 3, "b": 2}
    arrays = [np.asarray(NUMBERS.standard_normal(tuple(sizes[name] for name in names)))
              for names in inputs]
    expected = np.einsum(",".join("".join(names) for names in inputs) + "->" + "".join(output),
                         *arrays)
    for backend, make in (("numpy", np.asarray), ("torch", torch.from_numpy)):
        value = client.contract(inputs, output, None, [make(array) for array in arrays],
                                backend=backend)
        np.testing.assert_allclose(np.asarray(value), expected)


def test_gradients_flow_through_torch(client):
    a = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    b = torch.rand(4, 3, dtype=torch.float64)
    client.contract(["ab", "ba"], "", None, [a, b], backend="torch").backward()
    np.testing.assert_allclose(a.grad, b.T)


def test_other_ways_to_say_the_same(client):
    a, b = NUMBERS.standard_normal((3, 4)), NUMBERS.standard_normal((4, 5))
    np.testing.assert_allclose(client.einsum("ab,bc->ac", a, b, backend="numpy"), a @ b)
    value, info = client.einsum("ab,bc->ac", a, b, backend="numpy", return_info=True)
    assert info["execution_backend"] == "numpy"
    plan = client.plan(["ab", "bc"], "ac", {"a": 3, "b": 4, "c": 5}, target_size=5,
                       allow_output_slicing=True)
    assert plan.sliced
    np.testing.assert_allclose(
        client.contract(["ab", "bc"], "ac", None, [a, b], backend="numpy", plan=plan), a @ b)
    with client.contract_expression("ab,bc->ac", a, (4, 5), constants=[0]) as expr:
        np.testing.assert_allclose(expr(b, backend="numpy"), a @ b)
        out = np.empty((3, 5))
        assert expr(b, backend="numpy", out=out) is out and np.allclose(out, a @ b)
    tree = plan.tree()
    np.testing.assert_allclose(client.contract_tree(tree, [a, b], backend="numpy"), a @ b)


class Queued:
    """The array of a library that only queues its work."""

    def __init__(self, array):
        self.array = np.asarray(array)
        self.dtype, self.shape, self.ndim = self.array.dtype, self.array.shape, self.array.ndim

    def __getitem__(self, key):
        return Queued(self.array[key])

    def __add__(self, other):
        return Queued(self.array + other.array)

    def __array__(self, *_):
        raise AssertionError("an array has left its device")


@pytest.fixture(params=["cupy", "jax"])
def fake(request, monkeypatch):
    """A library under one of the asynchronous names, and how often its `stack` was called."""
    calls = {"stack": 0}

    def stack(arrays, axis):
        calls["stack"] += 1
        return Queued(np.stack([array.array for array in arrays], axis))

    module = types.ModuleType(request.param)
    space = module
    monkeypatch.setitem(sys.modules, request.param, module)
    if request.param == "jax":
        space = module.numpy = types.ModuleType("jax.numpy")
        monkeypatch.setitem(sys.modules, "jax.numpy", space)
    space.ndarray, space.stack = Queued, stack
    space.einsum = lambda text, *arrays, **_: Queued(np.einsum(text, *(a.array for a in arrays)))
    space.tensordot = lambda a, b, axes: Queued(np.tensordot(a.array, b.array, axes))
    space.transpose = lambda a, axes: Queued(np.transpose(a.array, axes))
    monkeypatch.setattr(Queued, "__module__", request.param)
    dispatch = pytest.importorskip("opt_einsum.backends.dispatch")
    monkeypatch.setattr(dispatch, "_cached_funcs", {})
    for cache in ("_has_einsum", "_has_tensordot"):
        monkeypatch.setattr(dispatch, cache, {})
    return request.param, calls


def test_asynchronous_libraries_claim_no_completion(client, fake):
    backend, calls = fake
    inputs, output, sizes, arrays, expected = network()
    value, info = client.contract(inputs, output, sizes, [Queued(array) for array in arrays],
                                  backend=backend, path=[(0, 1)] * 6, sliced=["x", "y", "h"],
                                  return_info=True)
    assert isinstance(value, Queued) and calls["stack"] > 0
    np.testing.assert_allclose(value.array, expected)
    assert info["execution_wall_s"] is None and info["execution_dispatch_wall_s"] > 0
    assert info["execution_timing_scope"] == "external_backend_completion_not_verified"


def test_a_library_that_fails_is_not_replaced(client, fake, monkeypatch):
    backend, _ = fake
    library = sys.modules["jax.numpy" if backend == "jax" else backend]

    def broken(*_, **__):
        raise MemoryError("device")

    monkeypatch.setattr(library, "tensordot", broken)
    monkeypatch.setattr(library, "einsum", broken)
    with pytest.raises(MemoryError, match="device"):
        client.contract(["ab", "bc"], "ac", None, [Queued(np.ones((2, 2)))] * 2, backend=backend)


@pytest.mark.parametrize("backend,arrays,error,text", [
    ("auto", [np.eye(2)] * 2, tenon.InvalidRequest, "auto"),
    ("", [np.eye(2)] * 2, tenon.InvalidRequest, "no backend"),
    (" numpy", [np.eye(2)] * 2, tenon.InvalidRequest, "no backend"),
    (7, [np.eye(2)] * 2, tenon.InvalidRequest, "no backend"),
    ("torch", [np.eye(2)] * 2, tenon.InvalidRequest, "does not take"),
    ("numpy", [np.eye(2)], tenon.InvalidRequest, "operands are named"),
    ("numpy", [np.eye(2), np.eye(3)], tenon.InvalidRequest, "long"),
    ("numpy", [np.eye(2), np.ones(2)], tenon.InvalidRequest, "axes"),
    ("numpy", [np.eye(2), np.eye(2, dtype=np.float32)], tenon.InvalidRequest, "float32"),
    ("numpy", [np.eye(2, dtype=int)] * 2, tenon.InvalidRequest, "int64"),
])
def test_refusals(client, backend, arrays, error, text):
    with pytest.raises(error, match=text):
        client.contract(["ab", "bc"], "ac", None, arrays, backend=backend)


def test_a_library_that_is_not_there_says_what_to_install(client, monkeypatch):
    for name in ("cupy", "jax.numpy", "opt_einsum"):
        monkeypatch.setitem(sys.modules, name, None)
    for backend in ("cupy", "jax", "numpy"):
        with pytest.raises(ImportError, match="pip install"):
            client.contract(["ab", "bc"], "ac", None, [np.eye(2)] * 2, backend=backend)


def test_options_of_the_server_are_not_ignored(client):
    with pytest.raises(TypeError, match="providers"):
        client.contract(["ab", "bc"], "ac", None, [np.eye(2)] * 2, backend="numpy",
                        providers=["cpu"])


def test_only_numpy_counts_as_synchronous():
    assert _backends._SYNCHRONOUS == ("numpy",)


def test_the_package_needs_none_of_them():
    """What is imported with it: NumPy and gRPC, and nothing of the peers."""
    names = ("opt_einsum", "cotengra", "quimb", "torch", "cupy", "jax", "autoray")
    code = f"""
import sys
for name in {names}:
    sys.modules[name] = None
import tenon
tenon.aio.Client
print(tenon.Optimizer(max_trials=2).plan.__name__)
"""
    folder = str(pathlib.Path(tenon.__file__).parents[1])
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                            env={**os.environ, "PYTHONPATH": folder})
    assert answer.stdout == "plan\n"
