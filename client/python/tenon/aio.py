"""The client for asyncio: the same methods, to be awaited.

    async with tenon.aio.Client() as client:
        c = await client.einsum("ab,bc->ac", a, b)

Cancelling the task cancels the call on the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import (AsyncIterable, AsyncIterator, Callable, Hashable, Iterable, Mapping,
                             Sequence)
from typing import Any

import numpy as np

from tenon import (_aio_streams, _backends, _expression_spec, _fields, _networks, _questions,
                   _tasks)
from tenon._aio_connection import Connection, frames
from tenon._aio_streams import Stream
from tenon._contraction import Question, Result
from tenon._expression_spec import Spec
from tenon._networks import Network
from tenon.errors import DeadlineExceeded, TenonError, Unavailable
from tenon.plans import Plan
from tenon.v1 import contraction_pb2, provider_pb2

__all__ = ["Client", "ContractExpression"]

_END = object()


class Client:
    """`tenon.Client` for asyncio. Connects, and starts a private server, when it is first used.

    For one event loop. `address`, `timeout` and the further options are those of `tenon.Client`.
    Measurements are made by the synchronous client.
    """

    def __init__(self, address: str | None = None, *, timeout: float = 3600.0,
                 **options: Any) -> None:
        self._options = {"address": address, **options}
        self._timeout = timeout
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None
        self._closed = False

    async def connect(self) -> Connection:
        """Not needed: every method does it."""
        async with self._opening:
            if self._closed:
                raise Unavailable("the client is closed")
            if self._connection is None:
                self._connection = await Connection.open(**self._options)
            return self._connection

    async def info(self) -> provider_pb2.GetServerInfoResponse:
        """What the server is and allows; asked once."""
        return await (await self.connect()).info()

    @property
    def shared_memory_reason(self) -> str | None:
        """Why tensors are sent; None: they lie in shared memory."""
        sharing = self._connection.sharing if self._connection is not None else None
        return sharing.reason if sharing is not None else "it was not asked for"

    async def close(self) -> None:
        """Closes the connection, and stops a private server."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def einsum(self, subscripts: str, *operands: Any, return_info: bool = False,
                     **options: Any) -> Any:
        """See `tenon.Client.einsum`."""
        if _backends.is_native(options.get("backend")):
            options.pop("backend", None)
            return await self._do(_questions.einsum(subscripts, operands, options,
                                                    timeout=self._timeout, return_info=return_info))
        return await self.contract(*_networks.parse(subscripts), None, operands,
                                   return_info=return_info, **options)

    async def contract(self, inputs: Any, output: Sequence[Hashable] | None = None,
                       size_dict: Mapping[Hashable, int] | None = None,
                       arrays: Sequence[Any] | None = None, **options: Any) -> Any:
        """See `tenon.Client.contract`. A ``backend`` computes in a thread."""
        return await self._do(_tasks.contract(inputs, output, size_dict, arrays, options,
                                              timeout=self._timeout))

    async def contract_tree(self, tree: Any, arrays: Sequence[Any], **options: Any) -> Any:
        """See `tenon.Client.contract_tree`."""
        return await self._do(_tasks.contract_tree(tree, arrays, options, timeout=self._timeout))

    async def plan(self, inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable] | None,
                   size_dict: Mapping[Hashable, int], *, dtype: Any = None,
                   on_improvement: Callable[[contraction_pb2.PlanImprovement], None] | None = None,
                   timeout: float | None = None, **options: Any) -> Plan:
        """See `tenon.Client.plan`."""
        network = _questions.network_of(inputs, output, size_dict)
        return await self._search(network, _questions.plan_request(network, dtype, options),
                                  timeout or self._timeout, on_improvement)

    async def tree(self, inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable] | None,
                   size_dict: Mapping[Hashable, int], *, return_info: bool = False,
                   **options: Any) -> Any:
        """See `tenon.Client.tree`."""
        plan = await self.plan(inputs, output, size_dict, **options)
        return (plan.tree(), _fields.tree_fields(plan, options)) if return_info else plan.tree()

    async def contract_expression(self, subscripts: Any, *shapes: Any, constants: Any = None,
                                  output: Sequence[Hashable] | None = None, streams: int = 1,
                                  **options: Any) -> ContractExpression:
        """See `tenon.Client.contract_expression`."""
        spec = Spec(subscripts, shapes, constants, output, options)
        if spec.request is not None:
            spec.plan = await self._search(spec.network, spec.request, self._timeout, None)
        return ContractExpression(await self.connect(), spec, streams)

    async def contract_many(self, subscripts: Any, sets: Iterable[Any] | AsyncIterable[Any], *,
                            output: Sequence[Hashable] | None = None,
                            constants: Mapping[int, Any] | None = None,
                            **options: Any) -> AsyncIterator[Any]:
        """See `tenon.Client.contract_many`; `sets` may be asynchronous."""
        items = _items(sets)
        first = await _next(items)
        if first is _END:
            return
        constants = constants or {}
        expression = await self.contract_expression(
            subscripts, *_expression_spec.operands(subscripts, first, constants), output=output,
            constants=constants, **options)
        async for value in expression.map(_chain(first, items),
                                          expected=_expression_spec.expected_sets(sets)):
            yield value

    async def _do(self, task: _tasks.Task) -> Any:
        connection = await self.connect()
        if isinstance(task, Question):
            return await _aio_streams.run(connection, task)
        if task.header is not None:
            request = contraction_pb2.EstimateRequest(header=task.header)
            plan = task.estimated(await connection.unary(connection.contraction.Estimate, request,
                                                         task.timeout))
        else:
            plan = await self._search(task.network, task.request, task.timeout, None)
        return await asyncio.to_thread(task.run, plan)

    async def _search(self, network: Network, request: Any, timeout: float,
                      on_improvement: Callable[[Any], None] | None) -> Plan:
        connection = await self.connect()
        answer = _questions.PlanAnswer(network, on_improvement)
        call = connection.stream(connection.contraction.PlanContraction, request, timeout)
        async for frame in frames(call):
            answer.take(frame)
        return answer.plan()


class ContractExpression:
    """See `tenon.ContractExpression`; this is for asyncio, for tasks of one event loop."""

    def __init__(self, connection: Connection, spec: Spec, streams: int) -> None:
        self._connection, self._spec = connection, spec
        self._kept = _expression_spec.Kept(streams)
        self._slots = asyncio.Semaphore(streams)

    @property
    def plan(self) -> Plan | None:
        """The plan, or None when the caller gave a path."""
        return self._spec.plan

    async def __call__(self, *arrays: Any, out: np.ndarray | None = None,
                       backend: str | None = None) -> Any:
        """See `tenon.ContractExpression`."""
        if not _backends.is_native(backend):
            return await asyncio.to_thread(self._spec.local, str(backend), arrays, out)
        prepared = self._spec.prepare(arrays)
        async with self._slots:
            question, result = await self._serve(prepared)
        return _expression_spec.put_into(question.finish(result), out)

    async def map(self, sets: Iterable[Any] | AsyncIterable[Any], *, expected: int | None = None,
                  in_flight: int | None = None) -> AsyncIterator[Any]:
        """See `tenon.ContractExpression.map`; `sets` may be asynchronous."""
        self._kept.check_open()
        items = _items(sets)
        item = await _next(items)
        if item is _END:
            return
        dtypes = [array.dtype for array in self._spec.prepare(self._spec.one_set(item))]
        question = await _aio_streams.share(self._connection,
                                            self._spec.question(dtypes, expected=expected))
        async with Stream(self._connection, question, self._spec.timeout) as stream:
            window = in_flight or max(2, 2 * (await stream.accepted()).sets_together)
            waiting = 0
            while True:
                while item is not _END and waiting < window:
                    stream.submit(self._spec.prepare(self._spec.one_set(item), dtypes))
                    waiting += 1
                    item = await _next(items)
                    if item is _END:
                        stream.finish()
                if waiting == 0:
                    break
                result = await stream.result()
                waiting -= 1
                yield question.finish(result)
            await stream.report()

    async def close(self) -> None:
        """Ends the calls that are kept open; those that run are not disturbed."""
        for stream in self._kept.close():
            stream.close()

    async def __aenter__(self) -> ContractExpression:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._spec)

    async def _serve(self, arrays: list[np.ndarray]) -> tuple[Question, Result]:
        dtypes = tuple(array.dtype for array in arrays)
        kept, surplus = self._kept.take(dtypes)
        for stream in surplus:
            stream.close()
        if kept is not None:
            try:
                return await self._ask(dtypes, *kept, arrays)
            except TenonError as error:
                if not _expression_spec.is_stale(error):
                    raise
        question = await _aio_streams.share(self._connection, self._spec.question(dtypes))
        return await self._ask(dtypes, question, Stream(self._connection, question), arrays)

    async def _ask(self, dtypes: tuple[np.dtype, ...], question: Question, stream: Stream,
                   arrays: list[np.ndarray]) -> tuple[Question, Result]:
        seconds = self._spec.timeout
        try:
            stream.submit(arrays)
            result = await asyncio.wait_for(stream.result(), seconds)
            self._spec.pin(dtypes, await stream.accepted())
        except asyncio.TimeoutError:
            stream.close()
            raise DeadlineExceeded(f"no result within {seconds:g} s", reason="DEADLINE") from None
        except BaseException:
            stream.close()
            raise
        if not self._kept.put(dtypes, question, stream):
            stream.close()
        return question, result


def _items(sets: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    async def items() -> AsyncIterator[Any]:
        if isinstance(sets, AsyncIterable):
            async for item in sets:
                yield item
        else:
            for item in sets:
                yield item
    return items()


async def _next(items: AsyncIterator[Any]) -> Any:
    try:
        return await items.__anext__()
    except StopAsyncIteration:
        return _END


async def _chain(first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for item in rest:
        yield item
