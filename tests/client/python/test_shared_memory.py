"""Tensors in memory that is shared with the server, and every way back to sending them."""

import asyncio
import gc

import numpy as np
import pytest

import tenon
from tenon import aio
from tenon.shared_memory import SharedMemory

NUMBERS = np.random.default_rng(17)


def numbers(*shape):
    return NUMBERS.standard_normal(shape)


@pytest.fixture(scope="module")
def sharer():
    with tenon.Client(flags=["--memory_budget=1GiB"], shared_memory="32MiB") as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_lost(sharer):
    """Every test gives back what it took."""
    yield
    gc.collect()
    pool = sharer.shared_memory
    assert pool is not None
    pool.token()  # gives free what calls that were left had taken
    assert pool.free_bytes == pool.size_bytes == 32 << 20


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_the_bits_are_those_that_are_sent(sharer, client, dtype):
    a, b = numbers(150, 200).astype(dtype), numbers(200, 170).astype(dtype)
    got, report = sharer.einsum("ab,bc->ac", a, b, return_info=True)
    assert np.array_equal(got, client.einsum("ab,bc->ac", a, b))
    assert report.shared_memory and sharer.shared_memory_reason is None
    assert report.timing.received_bytes == report.timing.sent_bytes == 0
    assert sharer.shared_memory.region(got) is not None
    inputs, sizes = ["ab", "bc"], {"a": 150, "b": 200, "c": 170}
    assert np.array_equal(sharer.contract(inputs, "ac", sizes, [a, b]), got)


def test_what_is_small_goes_in_the_message(sharer):
    value, report = sharer.einsum("ab,bc->ac", np.eye(3), np.eye(3), return_info=True)
    assert np.array_equal(value, np.eye(3)) and not report.shared_memory


def test_types_that_widen(sharer):
    a, b = numbers(200, 200).astype(np.float32), numbers(200, 200)
    np.testing.assert_allclose(sharer.einsum("ab,bc->ac", a, b), a @ b, rtol=1e-5, atol=1e-5)
    got = sharer.einsum("ab,bc->ac", b, b, dtype=np.complex64)
    assert got.dtype == np.complex64
    np.testing.assert_allclose(got, b @ b, rtol=1e-3, atol=1e-3)
    value, scale = sharer.einsum("ab,bc->ac", b, b, normalize=True)
    np.testing.assert_allclose(value * 10**scale, b @ b)


def test_results_are_given_back_with_their_last_view(sharer):
    pool = sharer.shared_memory
    a = numbers(300, 300)
    got = sharer.einsum("ab,bc->ac", a, a)
    held = pool.size_bytes - pool.free_bytes
    assert held >= got.nbytes
    part = got[::2].T
    expected = part.copy()
    del got
    gc.collect()
    assert pool.size_bytes - pool.free_bytes == held
    sharer.einsum("ab,bc->ac", a + 1, a)  # may not take that place
    assert np.array_equal(part, expected)
    del part
    gc.collect()
    assert pool.free_bytes == pool.size_bytes


def test_arrays_in_the_pool_are_not_copied(sharer, monkeypatch):
    pool = sharer.shared_memory
    a = pool.empty((400, 300))
    a[...] = numbers(400, 300)
    free = pool.free_bytes
    taken = []
    allocate = SharedMemory.allocate

    def record(self, shape, dtype):
        taken.append(shape)
        return allocate(self, shape, dtype)

    monkeypatch.setattr(SharedMemory, "allocate", record)
    got = sharer.einsum("ab->b", a)
    np.testing.assert_allclose(got, a.sum(0))
    assert not taken and pool.free_bytes == free
    assert np.allclose(sharer.einsum("ab->b", a[1:]), a[1:].sum(0))  # no multiple of 64: a copy
    assert taken


def test_what_has_no_room_is_sent(sharer):
    big = numbers(3000, 1000)  # 24 MB
    value, report = sharer.einsum("ab,ab->", big, big, return_info=True)
    np.testing.assert_allclose(value, (big * big).sum())
    assert report.timing.received_bytes == big.nbytes and report.shared_memory
    with pytest.raises(tenon.Refused) as caught:
        sharer.shared_memory.empty((5000, 1000))
    assert caught.value.reason == "EXCEEDS_MEMORY_BUDGET"


def test_a_server_that_shares_nothing(client):
    with tenon.Client(client.address, shared_memory=True) as other:
        a = numbers(200, 200)
        value, report = other.einsum("ab,bc->ac", a, a, return_info=True)
        np.testing.assert_allclose(value, a @ a)
        assert not report.shared_memory and other.shared_memory is None
        assert "shared_memory_socket" in other.shared_memory_reason
    assert client.shared_memory is None and "not asked" in client.shared_memory_reason


def test_a_pool_that_the_server_refuses(sharer):
    with tenon.Client(flags=["--shared_memory_pool_limit=1MiB"], shared_memory="2MiB") as other:
        a = numbers(200, 200)
        np.testing.assert_allclose(other.einsum("ab,bc->ac", a, a), a @ a)
        assert "EXCEEDS_SERVER_LIMIT" in other.shared_memory_reason
    for size, error in ((0, tenon.InvalidRequest), (1 << 62, tenon.TenonError)):
        with pytest.raises(error):
            SharedMemory(sharer.shared_memory._path, size)
    with pytest.raises(tenon.Unavailable):
        SharedMemory("/nowhere/socket", 1 << 20)
    with pytest.raises(tenon.Unavailable):
        SharedMemory("x" * 200, 1 << 20)
    with pytest.raises(tenon.InvalidRequest):
        tenon.Client(sharer.address, shared_memory="lots")


def test_a_pool_whose_connection_ended_is_introduced_anew(sharer):
    a = numbers(200, 200)
    sharer.shared_memory._handles.disconnect()
    value, report = sharer.einsum("ab,bc->ac", a, a, return_info=True)
    np.testing.assert_allclose(value, a @ a)
    assert report.shared_memory


def test_a_pool_that_the_server_has_forgotten_is_not_used(sharer, monkeypatch):
    a = numbers(200, 200)
    monkeypatch.setattr(SharedMemory, "token", lambda self: b"x" * 16)
    value, report = sharer.einsum("ab,bc->ac", a, a, return_info=True)
    np.testing.assert_allclose(value, a @ a)
    assert not report.shared_memory
    monkeypatch.undo()


def test_errors_come_through_and_keep_nothing(sharer):
    with pytest.raises(tenon.InvalidRequest) as caught:
        sharer.einsum("ab,bc->ac", numbers(200, 100), numbers(200, 200))
    assert caught.value.reason == "SHAPE_MISMATCH"


def test_a_call_that_is_left_keeps_its_place_for_a_while(sharer):
    """The server may still write there: nobody gets the place before it has let go."""
    pool = sharer.shared_memory
    a = np.ones((700, 700))

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sharer.einsum("ab,bc,cd,de,ef->af", a, a, a, a, a,
                      on_progress=interrupt, progress_interval=0.001)
    gc.collect()
    assert pool.free_bytes <= pool.size_bytes - a.nbytes
    while True:  # the server lets go soon after
        try:
            pool.token()
            break
        except tenon.Refused as error:
            assert error.reason == "IN_USE"
    value, report = sharer.einsum("ab->b", a, return_info=True)
    assert value[0] == 700 and report.shared_memory


def test_expressions_and_many_sets(sharer):
    a = numbers(300, 300)
    with sharer.contract_expression("ab,bc->ac", a, (300, 200), constants=[0]) as expr:
        for _ in range(3):
            b = numbers(300, 200)
            got = expr(b)
            np.testing.assert_allclose(got, a @ b)
            assert sharer.shared_memory.region(got) is not None
        sets = [numbers(300, 200) for _ in range(6)]
        for got, b in zip(expr.map(sets), sets):
            np.testing.assert_allclose(got, a @ b)
    many = sharer.contract_many("ab,bc->ac", [(a, b) for b in sets])
    for got, b in zip(many, sets):
        np.testing.assert_allclose(got, a @ b)


def test_sets_that_have_no_room_are_sent(sharer):
    sets = [numbers(1500, 700) for _ in range(6)]  # 8 MB each
    kept = list(sharer.contract_many("ab->ba", sets))
    assert all(np.array_equal(got, value.T) for got, value in zip(kept, sets))
    regions = [sharer.shared_memory.region(value) for value in kept]
    assert any(regions) and not all(regions)


def test_asyncio_shares_too(sharer):
    a = numbers(300, 300)

    async def main():
        async with aio.Client(sharer.address, shared_memory="8MiB") as other:
            value, report = await other.einsum("ab,bc->ac", a, a, return_info=True)
            np.testing.assert_allclose(value, a @ a)
            assert report.shared_memory and report.timing.received_bytes == 0
            assert other.shared_memory_reason is None
            async with await other.contract_expression("ab,bc->ac", a, a.shape,
                                                       constants=[0]) as expr:
                np.testing.assert_allclose(await expr(a), a @ a)

    asyncio.run(main())
