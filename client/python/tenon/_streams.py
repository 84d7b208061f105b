"""Contract calls on a synchronous channel."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np

from tenon import _questions, _sharing, errors
from tenon._connection import Connection
from tenon._contraction import Answer, Question, Request, Result
from tenon.errors import TenonError
from tenon.v1 import contraction_pb2


class _Upload:
    """The request's frames, as gRPC's thread asks for them. What follows the header waits until the
    server has accepted it. Knows nothing of the stream, so that an abandoned one is collected.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        self._granted = threading.Event()
        self._granted_bytes: int | None = None
        self._sets: queue.SimpleQueue[Sequence[np.ndarray] | None] = queue.SimpleQueue()

    def grant(self, chunk_bytes: int) -> None:
        self._granted_bytes = chunk_bytes
        self._granted.set()

    def put(self, arrays: Sequence[np.ndarray] | None) -> None:
        """A set, or None: there are no more."""
        self._sets.put(arrays)

    def end(self) -> None:
        """The call is over: whoever waits here goes on, and ends."""
        self._granted.set()
        self._sets.put(None)

    def __iter__(self) -> Iterator[Request]:
        yield self._question.opening()
        self._granted.wait()
        size = self._granted_bytes
        if size is None:
            return
        yield from self._question.constants(size)
        if not self._question.varying:
            return
        for index in itertools.count():
            arrays = self._sets.get()
            if arrays is None:
                return
            yield from self._question.set_frames(index, arrays, size)


class Stream:
    """A call that runs: sets go up, results come down in their order. For one thread at a time.

    A context manager; leaving it before the end cancels the call on the server.
    """

    def __init__(self, connection: Connection, question: Question,
                 timeout: float | None = None) -> None:
        self._question, self._answer = question, Answer(question)
        self._upload = _Upload(question)
        self.served = 0
        if question.has_uploads:
            self._call = connection.stream(connection.contract, iter(self._upload), timeout)
        else:
            self._call = connection.stream(connection.contract_header_only, question.opening(),
                                           timeout)

    @property
    def accepted(self) -> contraction_pb2.ContractAccepted:
        """The server's first word; waits for it."""
        while self._answer.accepted is None:
            if not self._step():
                raise TenonError("the answer ended before the call was accepted")
        return self._answer.accepted

    def submit(self, arrays: Sequence[np.ndarray]) -> None:
        self._upload.put(arrays)

    def finish(self) -> None:
        """There are no more sets."""
        self._upload.put(None)

    def result(self) -> Result:
        """The next result; waits for it."""
        while True:
            found = self._step()
            if found is False:
                raise TenonError("the answer ended before the result was complete")
            if isinstance(found, Result):
                self.served += 1
                return found

    def report(self) -> contraction_pb2.ContractionReport:
        """Reads to the end."""
        while self._step():
            pass
        if self._answer.report is None:
            raise TenonError("the answer ended without a report")
        return self._answer.report

    def cancel(self) -> None:
        """From any thread: whoever waits for a result gets `Cancelled`."""
        self._call.cancel()

    def close(self) -> None:
        self._call.cancel()
        self._upload.end()
        self._question.ended()

    def _step(self) -> Result | bool:
        """Takes one frame; False when there are no more."""
        try:
            kind, content = next(self._call)
        except StopIteration:
            return False
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None
        result = self._answer.take(kind, content)
        if kind == "accepted":
            self._upload.grant(content.granted.max_chunk_bytes)
        return True if result is None else result

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_call"):
            self.close()


def share(connection: Connection, question: Question) -> Question:
    """The same question with its large tensors in shared memory, where there is some."""
    if connection.sharing is None:
        return question
    return connection.sharing.place(question, connection.info(), _questions.result_bytes(question))


def run(connection: Connection, question: Question) -> Any:
    """A call of one set: what its caller gets. Leaving it by an exception cancels it."""
    shared = share(connection, question)
    try:
        return _run(connection, shared)
    except TenonError as error:
        if shared is question or not _sharing.refuses_pool(error):
            raise
    return _run(connection, question)


def _run(connection: Connection, question: Question) -> Any:
    with Stream(connection, question, question.timeout) as stream:
        result = stream.result()
        return question.value(result, stream.report())
