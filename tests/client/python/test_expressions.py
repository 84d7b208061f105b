"""Compiled expressions and many sets, against opt_einsum and NumPy."""

import threading

import numpy as np
import opt_einsum
import pytest

import tenon
from tenon import _streams

NUMBERS = np.random.default_rng(5)


def numbers(*shape):
    return NUMBERS.standard_normal(shape)


@pytest.fixture
def opened(monkeypatch):
    """The streams that were opened."""
    found = []
    begin = _streams.Stream.__init__

    def record(self, *arguments, **options):
        begin(self, *arguments, **options)
        found.append(self)

    monkeypatch.setattr(_streams.Stream, "__init__", record)
    return found


def test_it_is_used_as_opt_einsums(client):
    a, b = numbers(3, 4), numbers(4, 5)
    peer = opt_einsum.contract_expression("ab,bc->ac", (3, 4), (4, 5))
    with client.contract_expression("ab,bc->ac", (3, 4), (4, 5)) as expr:
        np.testing.assert_allclose(expr(a, b), peer(a, b))
        out = np.empty((3, 5))
        assert expr(a, b, out=out) is out
        np.testing.assert_allclose(out, a @ b)


def test_constants_are_used_as_opt_einsums(client):
    a, b = numbers(3, 4), numbers(4, 5)
    peer = opt_einsum.contract_expression("ab,bc->ac", a, (4, 5), constants=[0])
    with client.contract_expression("ab,bc->ac", a, (4, 5), constants=[0]) as expr:
        assert repr(expr) == repr(peer) == "<ContractExpression('[ab],bc->ac', constants=[0])>"
        np.testing.assert_allclose(expr(b), peer(b))


def test_the_interleaved_form(client):
    a, b, c = numbers(3, 4), numbers(4, 5), numbers(5, 3)
    for right in ([], [[2, 0]], [[0]]):
        form = ((3, 4), [0, 1], (4, 5), [1, 2], (5, 3), [2, 0], *right)
        peer = opt_einsum.contract_expression(*form)
        with client.contract_expression(*form) as expr:
            np.testing.assert_allclose(expr(a, b, c), peer(a, b, c))


def test_named_indices_and_constants_by_place(client):
    a, b = numbers(3, 4), numbers(4, 5)
    with client.contract_expression([("i", "j"), ("j", "k")], None, (4, 5), output=["k", "i"],
                                    constants={0: a}) as expr:
        np.testing.assert_allclose(expr(b), (a @ b).T)
    with client.contract_expression([("i", "j"), ("j", "k")], (3, 4), (4, 5)) as expr:
        np.testing.assert_allclose(expr(a, b), a @ b)


def test_it_plans_once_and_sends_constants_once(client, opened):
    """The bytes of the constants are in the header of one stream, and in no set."""
    a = numbers(200, 200)
    with client.contract_expression("ab,bc->ac", a, (200, 3), constants=[0]) as expr:
        assert expr.plan.ssa_path == [(0, 1)]
        for _ in range(4):
            b = numbers(200, 3)
            np.testing.assert_allclose(expr(b), a @ b)
        assert len(opened) == 1 and opened[0].served == 4
        opened[0].finish()
        assert opened[0].report().timing.received_bytes == a.nbytes + 4 * b.nbytes


def test_large_sets_come_and_go_in_chunks(client):
    with client.contract_expression("ab,bc->ac", (400, 500), (500, 600)) as expr:
        for _ in range(2):
            a, b = numbers(400, 500), numbers(500, 600)
            np.testing.assert_allclose(expr(a, b), a @ b)


def test_every_element_type_has_its_program(client):
    with client.contract_expression("ab,bc->ac", (3, 4), (4, 5)) as expr:
        for dtype in (np.float32, np.complex128, np.float64, np.float32):
            a, b = numbers(3, 4).astype(dtype), numbers(4, 5).astype(dtype)
            got = expr(a, b)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, a @ b, rtol=1e-5)


def test_the_program_is_pinned(client, opened):
    """Another stream demands what the first one had."""
    a, b = numbers(3, 4), numbers(4, 5)
    with client.contract_expression("ab,bc->ac", (3, 4), (4, 5)) as expr:
        first = expr(a, b)
        opened[0].close()
        expr._kept._idle.clear()
        assert np.array_equal(expr(a, b), first)
        assert len(opened) == 2
        pinned = expr._spec.question([a.dtype, b.dtype]).header.execution.required_fingerprint
        assert pinned == opened[0].accepted.plan.program_fingerprint != ""
        expr._spec._fingerprints[a.dtype, b.dtype] = "0" * 64
        expr.close()
    other = client.contract_expression("ab,bc->ac", (3, 4), (4, 5))
    other._spec._fingerprints[a.dtype, b.dtype] = "0" * 64
    with pytest.raises(tenon.TenonError) as caught:
        other(a, b)
    assert caught.value.reason == "FINGERPRINT_MISMATCH"


def test_a_stream_that_the_server_ended_is_opened_anew(opened):
    with tenon.Client(flags=["--idle_stream_timeout=200ms"]) as client:
        with client.contract_expression("a,a->", (3,), (3,)) as expr:
            assert expr(np.ones(3), np.ones(3)) == 3
            with pytest.raises(tenon.TenonError) as caught:  # waits for the server's end of it
                opened[0].result()
            assert caught.value.reason == "SLOW_WRITER"
            assert expr(np.ones(3), np.ones(3)) == 3
            assert len(opened) == 2


def test_threads_may_share_it(client, opened):
    a = numbers(30, 30)
    for streams in (1, 3):
        opened.clear()
        failures = []
        with client.contract_expression("ab,bc->ac", a, (30, 30), constants=[0],
                                        streams=streams) as expr:
            def work(seed):
                rng = np.random.default_rng(seed)
                for _ in range(10):
                    b = rng.standard_normal((30, 30))
                    if not np.allclose(expr(b), a @ b):
                        failures.append(seed)

            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not failures and 1 <= len(opened) <= streams


def test_a_closed_one_says_so(client):
    expr = client.contract_expression("a->", (3,))
    assert expr(np.ones(3)) == 3
    expr.close()
    expr.close()
    with pytest.raises(tenon.Unavailable, match="closed"):
        expr(np.ones(3))
    with pytest.raises(tenon.Unavailable, match="closed"):
        expr.map([])


def test_time_runs_out_for_one_call_only(client):
    n = 1500
    a = np.ones((n, n))
    with client.contract_expression("ab,bc,cd,de,ef->af", *[(n, n)] * 5, timeout=0.001) as expr:
        with pytest.raises(tenon.DeadlineExceeded):
            expr(a, a, a, a, a)
    with client.contract_expression("ab,bc->ac", (2, 2), (2, 2), timeout=60) as expr:
        assert expr(np.eye(2), np.eye(2))[0, 0] == 1


@pytest.mark.parametrize("optimize", [
    True, "auto", "greedy", "optimal", [(0, 1), (0, 1)],
    opt_einsum.RandomGreedy(max_repeats=4)])
def test_what_opt_einsum_calls_optimize(client, optimize):
    arrays = [numbers(3, 4), numbers(4, 5), numbers(5, 2)]
    with client.contract_expression("ab,bc,cd->ad", (3, 4), (4, 5), (5, 2),
                                    optimize=optimize) as expr:
        np.testing.assert_allclose(expr(*arrays), np.linalg.multi_dot(arrays))
    np.testing.assert_allclose(client.einsum("ab,bc,cd->ad", *arrays, optimize=optimize),
                               np.linalg.multi_dot(arrays))


def test_memory_limit_slices(client):
    inputs = "ab,bc,cd,de,ea->"
    arrays = [numbers(6, 6) for _ in range(5)]
    expected = np.einsum(inputs, *arrays)
    with client.contract_expression(inputs, *[(6, 6)] * 5, memory_limit=6) as expr:
        assert expr.plan.largest_intermediate <= 6 and expr.plan.slices > 1
        np.testing.assert_allclose(expr(*arrays), expected)
    for unlimited in (None, -1):
        with client.contract_expression(inputs, *[(6, 6)] * 5, memory_limit=unlimited) as expr:
            assert expr.plan.slices == 1
    with client.contract_expression(inputs, *[(6, 6)] * 5, memory_limit="max_input") as expr:
        assert expr.plan.largest_intermediate <= 36


def test_options_of_contract_hold(client):
    a = np.full((3, 3), 1e-200)
    with client.contract_expression("ab,bc,cd->ad", *[(3, 3)] * 3, normalize=True) as expr:
        value, scale = expr(a, a, a)
    assert np.log10(value[0, 0]) + scale == pytest.approx(np.log10(9) - 600)


@pytest.mark.parametrize("make,reason", [
    (lambda c: c.contract_expression("ab,bc->ac", (3, 4)), "BAD_EXPRESSION"),
    (lambda c: c.contract_expression("ab,bc->ac", (3, 4), (3, 4)), "SHAPE_MISMATCH"),
    (lambda c: c.contract_expression("ab,bc->ac", (3, 4), (4,)), "SHAPE_MISMATCH"),
    (lambda c: c.contract_expression("ab,bc->ac", (3, 4), 7), "SHAPE_MISMATCH"),
    (lambda c: c.contract_expression("a...,b->ab", (3, 4), (4,)), "BAD_EXPRESSION"),
    (lambda c: c.contract_expression(7, (3, 4)), "BAD_EXPRESSION"),
    (lambda c: c.contract_expression("a->", (3,), output=["a"]), ""),
    (lambda c: c.contract_expression("ab,bc->ac", (3, 4), (4, 5), constants=[2]), ""),
    (lambda c: c.contract_expression("a->", np.ones(3), constants=[0]), ""),
    (lambda c: c.contract_expression("ab,bc->ac", (3, 4), (4, 5), optimize="fast"),
     "BAD_PARAMETER"),
    (lambda c: c.contract_expression("ab,bc->ac", (3, 4), (4, 5), optimize=7), "BAD_PARAMETER"),
    (lambda c: c.contract_expression([(0,), (0,), (0,)], (3,), (3,), (3,)), "BAD_EXPRESSION"),
    (lambda c: c.contract_expression("a->", (3,))(np.ones(4)), "SHAPE_MISMATCH"),
    (lambda c: c.contract_expression("a->", (3,))(), "BAD_EXPRESSION"),
    (lambda c: c.contract_expression("a->", (3,))(np.ones(3), backend="auto"), "BAD_PARAMETER"),
    (lambda c: c.contract_expression("a->", (3,))(np.array(["x"] * 3)), "UNSUPPORTED_DTYPE"),
    (lambda c: c.contract_expression("ab,bc->ac", (3, 4), (4, 5), path=[(0, 7)])(
        numbers(3, 4), numbers(4, 5)), "BAD_PATH"),
])
def test_errors(client, make, reason):
    with pytest.raises(tenon.InvalidRequest) as caught:
        make(client)
    assert caught.value.reason == reason


def test_unknown_options_are_type_errors(client):
    with pytest.raises(TypeError, match="threds"):
        client.contract_expression("a->", (3,), threds=1)


def test_it_goes_on_after_a_bad_call(client):
    with client.contract_expression("a,a->", (3,), (3,)) as expr:
        with pytest.raises(tenon.InvalidRequest):
            expr(np.ones(3), np.ones(4))
        assert expr(np.ones(3), np.ones(3)) == 3


def test_many_sets(client, opened):
    a = numbers(6, 7)
    vectors = [numbers(7) for _ in range(50)]
    got = list(client.contract_many("ab,b->a", vectors, constants={0: a}))
    assert len(opened) == 1 and opened[0]._answer.report.sets == 50
    np.testing.assert_allclose(got, [a @ v for v in vectors])


def test_many_sets_are_read_as_results_are_taken(client):
    read = []

    def sets():
        for number in range(1000):
            read.append(number)
            yield np.full((2, 2), float(number)), np.eye(2)

    values = client.contract_many("ab,bc->ac", sets())
    for number in range(10):
        assert next(values)[0, 0] == number
        assert len(read) <= number + 4
    values.close()
    assert client.einsum("a->", [1.0]) == 1


def test_many_large_sets_keep_their_order(client):
    def sets():
        for number in range(5):
            yield np.full((100, 200), float(number)), np.ones((200, 120))

    got = [value[0, 0] for value in client.contract_many("ab,bc->ac", sets())]
    assert got == [0, 200, 400, 600, 800]


def test_a_mapped_expression_has_the_bits_of_single_calls(client):
    a = numbers(40, 50)
    vectors = [numbers(50) for _ in range(5)]
    with client.contract_expression("ab,b->a", a, (50,), constants=[0]) as expr:
        for got, vector in zip(expr.map(vectors, in_flight=3), vectors):
            assert np.array_equal(got, expr(vector))
        together = list(expr.map(vectors, expected=5))
    np.testing.assert_allclose(together, [a @ v for v in vectors])


def test_no_sets_no_results(client):
    assert list(client.contract_many("a->", [])) == []


def test_errors_of_the_sets_come_through(client):
    def sets():
        yield np.ones(3)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(client.contract_many("a->", sets()))
    with pytest.raises(tenon.InvalidRequest) as caught:
        list(client.contract_many("a->", [np.ones(3), np.ones(4)]))
    assert caught.value.reason == "SHAPE_MISMATCH"
    with pytest.raises(tenon.InvalidRequest) as caught:
        list(client.contract_many("a->", [np.ones(3), np.ones(3, complex)]))
    assert caught.value.reason == "UNSUPPORTED_DTYPE"
    with pytest.raises(tenon.InvalidRequest):
        list(client.contract_many("a,b->", [(np.ones(3),)]))
    assert list(client.contract_many("a->", [np.ones(3), np.ones(3, np.float32)])) == [3, 3]


def test_the_functions_of_the_module(client):
    tenon.set_default_client(client)
    try:
        assert tenon.contract_expression("a->", (3,))(np.ones(3)) == 3
        assert list(tenon.contract_many("a->", [np.ones(3)])) == [3]
    finally:
        tenon.set_default_client(None)
