"""Contract calls on asyncio's channel; the frames are those of `_contraction`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import numpy as np

from tenon import _questions, _sharing, errors
from tenon._aio_connection import Connection
from tenon._contraction import Answer, Question, Request, Result
from tenon.errors import TenonError
from tenon.v1 import contraction_pb2


class Stream:
    """A call that runs: sets go up, results come down in their order. For one task at a time.

    An asynchronous context manager; leaving it before the end cancels the call on the server.
    """

    def __init__(self, connection: Connection, question: Question,
                 timeout: float | None = None) -> None:
        self._question, self._answer = question, Answer(question)
        self._granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._sets: asyncio.Queue[Sequence[np.ndarray] | None] = asyncio.Queue()
        self.served = 0
        if question.has_uploads:
            self._call = connection.stream(connection.contract, self._requests(), timeout)
        else:
            self._call = connection.stream(connection.contract_header_only, question.opening(),
                                           timeout)
        self._frames = self._call.__aiter__()

    async def _requests(self) -> AsyncIterator[Request]:
        yield self._question.opening()
        size = await self._granted
        for frame in self._question.constants(size):
            yield frame
        if not self._question.varying:
            return
        for index in itertools.count():
            arrays = await self._sets.get()
            if arrays is None:
                return
            for frame in self._question.set_frames(index, arrays, size):
                yield frame

    async def accepted(self) -> contraction_pb2.ContractAccepted:
        """The server's first word; waits for it."""
        while self._answer.accepted is None:
            if not await self._step():
                raise TenonError("the answer ended before the call was accepted")
        return self._answer.accepted

    def submit(self, arrays: Sequence[np.ndarray]) -> None:
        self._sets.put_nowait(arrays)

    def finish(self) -> None:
        """There are no more sets."""
        self._sets.put_nowait(None)

    async def result(self) -> Result:
        """The next result; waits for it."""
        while True:
            found = await self._step()
            if found is False:
                raise TenonError("the answer ended before the result was complete")
            if isinstance(found, Result):
                self.served += 1
                return found

    async def report(self) -> contraction_pb2.ContractionReport:
        """Reads to the end."""
        while await self._step():
            pass
        if self._answer.report is None:
            raise TenonError("the answer ended without a report")
        return self._answer.report

    def close(self) -> None:
        self._call.cancel()
        self._question.ended()

    async def _step(self) -> Result | bool:
        """Takes one frame; False when there are no more."""
        try:
            kind, content = await self._frames.__anext__()
        except StopAsyncIteration:
            return False
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None
        result = self._answer.take(kind, content)
        if kind == "accepted" and not self._granted.done():
            self._granted.set_result(content.granted.max_chunk_bytes)
        return True if result is None else result

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()


async def share(connection: Connection, question: Question) -> Question:
    """The same question with its large tensors in shared memory, where there is some."""
    if connection.sharing is None:
        return question
    return await asyncio.to_thread(connection.sharing.place, question, await connection.info(),
                                   _questions.result_bytes(question))


async def run(connection: Connection, question: Question) -> Any:
    """A call of one set: what its caller gets. Leaving it, as by cancelling the task, cancels it."""
    shared = await share(connection, question)
    try:
        return await _run(connection, shared)
    except TenonError as error:
        if shared is question or not _sharing.refuses_pool(error):
            raise
    return await _run(connection, question)


async def _run(connection: Connection, question: Question) -> Any:
    async with Stream(connection, question, question.timeout) as stream:
        result = await stream.result()
        return question.value(result, await stream.report())
