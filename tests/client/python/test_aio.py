"""asyncio's client: the same answers, and cancelled tasks."""

import asyncio
import pathlib

import numpy as np
import pytest
import quimb.tensor as qtn

import tenon
from tenon import aio
from tenon.v1 import provider_pb2

NUMBERS = np.random.default_rng(13)


def numbers(*shape):
    return NUMBERS.standard_normal(shape)


def run(client, work):
    """Awaits `work(asynchronous client)` at the synchronous client's server."""
    async def main():
        async with aio.Client(client.address) as connected:
            return await work(connected)
    return asyncio.run(main())


def test_a_private_server_goes_with_its_client():
    async def main():
        async with tenon.aio.Client() as client:
            folder = pathlib.Path((await client.connect()).address.removeprefix("unix:")).parent
            assert folder.exists()
            assert await client.einsum("a->", [1.0, 2.0]) == 3
            assert (await client.info()).state == provider_pb2.SERVER_STATE_READY
        assert not folder.exists()
        with pytest.raises(tenon.Unavailable, match="closed"):
            await client.einsum("a->", [1.0])

    asyncio.run(main())


def test_a_private_server_that_does_not_start_says_why():
    async def main():
        await aio.Client(flags=["--memory_budget=lots"]).einsum("a->", [1.0])

    with pytest.raises(tenon.Unavailable, match="memory_budget"):
        asyncio.run(main())


def test_contractions_have_the_bits_of_the_synchronous_client(client):
    a, b = numbers(300, 200), numbers(200, 250)
    inputs, sizes = ["ab", "bc", "cd"], {"a": 5, "b": 6, "c": 7, "d": 3}
    arrays = [numbers(5, 6), numbers(6, 7), numbers(7, 3)]
    network = qtn.TN2D_rand(3, 3, D=2, seed=1)

    async def work(other):
        value, report = await other.einsum("ab,bc->ac", a, b, return_info=True)
        assert np.array_equal(value, client.einsum("ab,bc->ac", a, b)) and report.sets == 1
        plan = await other.plan(inputs, "ad", sizes, max_trials=4, target_size=15)
        assert plan.ssa_path == client.plan(inputs, "ad", sizes, max_trials=4,
                                            target_size=15).ssa_path
        got = await other.contract(inputs, "ad", sizes, arrays, plan=plan)
        assert np.array_equal(got, client.contract(inputs, "ad", sizes, arrays, plan=plan))
        tree = await other.tree(inputs, "ad", sizes, max_trials=4)
        np.testing.assert_allclose(await other.contract_tree(tree, arrays), got)
        for options in ({}, {"path": [(0, 1), (0, 1)]}):
            np.testing.assert_allclose(await other.contract(inputs, "ad", sizes, arrays,
                                                            backend="numpy", **options), got)
        assert await other.contract(network) == pytest.approx(network.contract())

    run(client, work)


def test_many_calls_at_once(client):
    pairs = [(numbers(20, 30), numbers(30, 20)) for _ in range(30)]

    async def work(other):
        return await asyncio.gather(*(other.einsum("ab,bc->ac", a, b) for a, b in pairs))

    for got, (a, b) in zip(run(client, work), pairs):
        np.testing.assert_allclose(got, a @ b)


def test_expressions(client):
    a, vectors = numbers(300, 200), [numbers(200) for _ in range(8)]

    async def work(other):
        async with await other.contract_expression("ab,b->a", a, (200,), constants=[0]) as expr:
            assert repr(expr) == "<ContractExpression('[ab],b->a', constants=[0])>"
            got = await asyncio.gather(*(expr(vector) for vector in vectors))
            out = np.empty(300)
            assert await expr(vectors[0], out=out) is out
            np.testing.assert_allclose(out, await expr(vectors[0], backend="numpy"))
            mapped = [value async for value in expr.map(vectors)]
            assert np.array_equal(got, mapped)
        with pytest.raises(tenon.Unavailable, match="closed"):
            await expr(vectors[0])
        return got

    np.testing.assert_allclose(run(client, work), [a @ v for v in vectors])


def test_an_expressions_time_runs_out(client):
    a = np.ones((1500, 1500))

    async def work(other):
        expr = await other.contract_expression("ab,bc,cd,de,ef->af", *[a.shape] * 5, timeout=0.001)
        with pytest.raises(tenon.DeadlineExceeded):
            await expr(a, a, a, a, a)

    run(client, work)


def test_many_sets(client):
    a, vectors = numbers(6, 7), [numbers(7) for _ in range(40)]

    async def source():
        for vector in vectors:
            yield vector

    async def work(other):
        for sets in (vectors, source()):
            got = [value async for value in other.contract_many("ab,b->a", sets, constants={0: a})]
            np.testing.assert_allclose(got, [a @ v for v in vectors])
        assert [value async for value in other.contract_many("a->", [])] == []

    run(client, work)




@pytest.mark.parametrize("method", ["einsum", "expression", "plan"])
def test_a_cancelled_task_cancels_on_the_server(method):
    """A server of one place: what comes next would wait for the whole work otherwise."""
    a = np.ones((1600, 1600))
    letters = "abcdefghijklmnopqr"
    text = ",".join(x + y for x, y in zip(letters, letters[1:])) + "->" + letters[0] + letters[-1]

    async def main():
        async with aio.Client(flags=["--concurrent_requests=1"]) as client:
            begun = asyncio.Event()

            def progress(_):
                begun.set()

            if method == "einsum":
                call = client.einsum(text, *[a] * 17, on_progress=progress,
                                     progress_interval=0.001)
            elif method == "expression":
                expression = await client.contract_expression(
                    text, *[a.shape] * 17, on_progress=progress, progress_interval=0.001)
                call = expression(*[a] * 17)
            else:
                inputs = [(k, (k + 1) % 60, (k * 7) % 60) for k in range(60)]
                call = client.plan(inputs, [], dict.fromkeys(range(60), 4), max_time=60,
                                   on_improvement=progress)
            task = asyncio.create_task(call)
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await client.einsum("a->", [1.0], timeout=20) == 1

    asyncio.run(main())


def test_errors_are_the_same(client):
    async def work(other):
        with pytest.raises(tenon.InvalidRequest) as caught:
            await other.einsum("ab,bc->ac", np.ones((2, 3)), np.ones((2, 3)))
        assert caught.value.reason == "SHAPE_MISMATCH" and caught.value.field
        with pytest.raises(tenon.InvalidRequest):
            await other.contract(["ab"], "a", None, [np.eye(2)], backend="auto")
        with pytest.raises(TypeError, match="threds"):
            await other.einsum("a->", [1.0], threds=1)
        with pytest.raises(tenon.InvalidRequest):
            await other.plan(["ab"], "a", {"a": 2, "b": 2}, minimize="beauty")
        with pytest.raises(tenon.InvalidRequest) as caught:
            [v async for v in other.contract_many("a->", [np.ones(3), np.ones(4)])]
        assert caught.value.reason == "SHAPE_MISMATCH"

    run(client, work)


def test_a_server_that_is_not_there():
    async def main():
        async with aio.Client("127.0.0.1:1") as client:
            await client.einsum("a->", [1.0], timeout=5)

    with pytest.raises(tenon.Unavailable):
        asyncio.run(main())
