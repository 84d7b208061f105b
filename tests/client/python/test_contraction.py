"""einsum, contract and plan against NumPy."""

import itertools

import numpy as np
import pytest

import tenon

NUMBERS = np.random.default_rng(3)


def numbers(dtype, *shape):
    values = NUMBERS.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * NUMBERS.standard_normal(shape)
    return values.astype(dtype)


def tolerance(dtype):
    return 1e-4 if np.dtype(dtype).itemsize in (4,) or dtype == np.complex64 else 1e-11


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("text,shapes", [
    ("ab,bc->ac", [(4, 5), (5, 6)]),
    ("ab,bc", [(4, 5), (5, 6)]),
    ("aab->b", [(3, 3, 4)]),
    ("ab->", [(3, 4)]),
    ("a,b->ba", [(3,), (4,)]),
    (",->", [(), ()]),
    ("ab,ab->ab", [(3, 4), (3, 4)]),
    ("ax,bx,cx,x->abc", [(2, 5), (3, 5), (4, 5), (5,)]),
    ("ab,bc->ac", [(0, 5), (5, 2)]),
    ("ab,bc->ac", [(2, 0), (0, 3)]),
    ("ab,bc->ac", [(150, 200), (200, 170)]),  # in chunks
])
def test_einsum_is_numpys(client, text, shapes, dtype):
    arrays = [numbers(dtype, *shape) for shape in shapes]
    got = client.einsum(text, *arrays)
    expected = np.einsum(text, *arrays)
    assert got.dtype == dtype and got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tolerance(dtype), atol=tolerance(dtype))


def test_types_promote_as_in_numpy(client):
    for left, right in itertools.product([np.float32, np.float64, np.complex64, np.complex128],
                                         repeat=2):
        got = client.einsum("a,a->", numbers(left, 7), numbers(right, 7))
        assert got.dtype == np.promote_types(left, right)


@pytest.mark.parametrize("value", [
    [[1, 2], [3, 4]],
    np.arange(4).reshape(2, 2),
    np.array([[True, False], [True, True]]),
    np.asfortranarray(np.arange(4.0).reshape(2, 2)),
    np.arange(16.0).reshape(4, 4)[::2, ::-2],
    np.arange(4.0).astype(">f8").reshape(2, 2),
    memoryview(np.arange(4.0)).cast("B").cast("d", (2, 2)),
])
def test_anything_like_an_array_is_taken(client, value):
    expected = np.einsum("ab,bc->ac", np.asarray(value, float), np.eye(2))
    np.testing.assert_array_equal(client.einsum("ab,bc->ac", value, np.eye(2)), expected)


def test_torch_tensors_are_taken(client):
    torch = pytest.importorskip("torch")
    value = torch.arange(6.0, dtype=torch.float64, requires_grad=True).reshape(2, 3)
    got = client.einsum("ab,cb->ac", value, value)
    np.testing.assert_array_equal(got, (value @ value.T).detach().numpy())


def test_large_operands_and_results(client):
    a, b = numbers(np.float64, 900, 300), numbers(np.float64, 300, 800)
    got, report = client.einsum("ab,bc->ac", a, b, return_info=True)
    np.testing.assert_allclose(got, a @ b, atol=1e-10)
    assert report.sets == 1 and report.execution_seconds > 0
    assert report.timing.received_bytes == a.nbytes + b.nbytes
    assert "1 step" in repr(report) and "GFLOP/s" in repr(report)


def ring(length, size):
    inputs = [(k, (k + 1) % length) for k in range(length)]
    arrays = [numbers(np.complex128, size, size) / size for _ in inputs]
    return inputs, arrays, np.trace(np.linalg.multi_dot(arrays))


def test_a_network_along_its_plan(client):
    inputs, arrays, expected = ring(9, 12)
    sizes = dict.fromkeys(range(9), 12)
    plan = client.plan(inputs, [], sizes, max_trials=16, seed=1, target_size=12 * 12)
    assert plan.largest_intermediate <= 144 and len(plan.ssa_path) == 8
    value, report = client.contract(inputs, [], sizes, arrays, plan=plan, return_info=True)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    assert [tuple(step.operands) for step in report.plan.path.steps] == plan.ssa_path
    for options in ({"path": plan.linear_path, "sliced": plan.sliced},
                    {"path": plan.ssa_path, "sliced": plan.sliced, "ssa": True}):
        again = client.contract(inputs, [], None, arrays, **options)
        assert again == value  # every bit


def test_slices_are_named_as_the_caller_names_them(client):
    inputs, arrays, expected = ring(6, 8)
    names = {k: ("bond", k) for k in range(6)}
    inputs = [tuple(names[k] for k in part) for part in inputs]
    sizes = {name: 8 for name in names.values()}
    plan = client.plan(inputs, [], sizes, max_trials=4, target_size=16)
    assert plan.slices > 1 and set(plan.sliced) <= set(sizes)
    value = client.contract(inputs, [], sizes, arrays, path=plan.ssa_path, ssa=True,
                            sliced=plan.sliced)
    np.testing.assert_allclose(value, expected, rtol=1e-10)


def test_improvements_are_told(client):
    inputs, _, _ = ring(40, 4)
    seen = []
    plan = client.plan(inputs, [], dict.fromkeys(range(40), 4), max_trials=8,
                       on_improvement=seen.append)
    assert seen and all(b.log2_score <= a.log2_score for a, b in zip(seen, seen[1:]))
    assert "40 operands" in repr(plan)


def test_normalized_values_carry_their_scale(client):
    a = np.full((3, 3), 1e-200)
    value, scale = client.einsum("ab,bc,cd->ad", a, a, a, normalize=True)
    assert np.log10(value[0, 0]) + scale == pytest.approx(np.log10(9) - 600)


@pytest.mark.parametrize("call,error,reason", [
    (lambda c: c.einsum("ab,bc->ac", np.ones((2, 3)), np.ones((2, 3))), tenon.InvalidRequest,
     "SHAPE_MISMATCH"),
    (lambda c: c.einsum("ab->c", np.ones((2, 3))), tenon.InvalidRequest, None),
    (lambda c: c.einsum("ab,bc->ac", np.ones((2, 3))), tenon.InvalidRequest, "BAD_EXPRESSION"),
    (lambda c: c.einsum("a->", ["x"]), tenon.InvalidRequest, "UNSUPPORTED_DTYPE"),
    (lambda c: c.einsum("a->", [1.0], providers=["nobody"]), tenon.InvalidRequest,
     "UNKNOWN_PROVIDER"),
    (lambda c: c.einsum("a->", [1.0], memory_budget="many"), tenon.InvalidRequest, None),
    (lambda c: c.einsum("a->", [1.0], priority="urgent"), tenon.InvalidRequest, None),
    (lambda c: c.einsum("i,j->ij", np.ones(9000), np.ones(9000), memory_budget="1MiB"),
     tenon.Refused, "EXCEEDS_MEMORY_BUDGET"),
    (lambda c: c.contract([(0, 1)], [2], None, [np.eye(2)]), tenon.InvalidRequest, "UNKNOWN_INDEX"),
    (lambda c: c.contract([(0, 1)], [0], None, [np.eye(2)], path=[(0, 7)]), tenon.InvalidRequest,
     "BAD_PATH"),
    (lambda c: c.einsum("a->", [1.0], sliced=["a"]), tenon.InvalidRequest, None),
    (lambda c: c.plan([(0,)], [], {0: 2}, minimize="beauty"), tenon.InvalidRequest, None),
])
def test_errors_say_what_is_wrong(client, call, error, reason):
    with pytest.raises(error) as caught:
        call(client)
    assert reason is None or caught.value.reason == reason
    assert isinstance(caught.value, tenon.TenonError)


def test_unknown_options_are_type_errors(client):
    with pytest.raises(TypeError, match="threds"):
        client.einsum("a->", [1.0], threds=1)
