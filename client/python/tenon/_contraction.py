"""One Contract call: the header, the uploads behind it, the results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tenon import _arrays
from tenon._connection import Connection, frames
from tenon.errors import TenonError
from tenon.v1 import contraction_pb2, plan_pb2, tensor_pb2

# All operands inside the header together; the frame stays under the contract's 4 MiB.
_MAX_INLINE_BYTES = 3 << 20

wire_type = _arrays.wire_type

_CONTRACT_DTYPES = ("float32", "float64", "complex64", "complex128")


def prepare(arrays: Sequence[Any]) -> list[np.ndarray]:
    """Host arrays of a type that contraction takes: integers and booleans become float64."""
    prepared = []
    for value in arrays:
        array = _arrays.to_numpy(value)
        if array.dtype.name not in _CONTRACT_DTYPES:
            if array.dtype.kind in "biu":
                array = array.astype(np.float64)
            elif array.dtype == np.float16:
                array = array.astype(np.float32)
        prepared.append(array)
    return prepared


def add_operands(arrays: Sequence[np.ndarray], operands: Any) -> list[int]:
    """Fills specs and what is inline; returns the operands whose bytes follow."""
    following, inline = [], 0
    for number, (array, operand) in enumerate(zip(arrays, operands, strict=True)):
        operand.spec.CopyFrom(_arrays.spec_of(array))
        if array.nbytes < _arrays.INLINE_BYTES and inline + array.nbytes <= _MAX_INLINE_BYTES:
            operand.inline_data = array.tobytes()
            inline += array.nbytes
        elif array.size:
            following.append(number)
    return following


class _Upload:
    """The request's frames. What follows the header waits until the server has accepted it."""

    def __init__(self, header: contraction_pb2.ContractHeader, arrays: Sequence[np.ndarray],
                 following: Sequence[int]) -> None:
        self._header, self._arrays, self._following = header, arrays, following
        self._granted = threading.Event()
        self._chunk_bytes: int | None = None

    def grant(self, chunk_bytes: int | None) -> None:
        """Lets the chunks go, of at most this size; None: the call is over."""
        self._chunk_bytes = chunk_bytes
        self._granted.set()

    def __iter__(self) -> Iterator[contraction_pb2.ContractRequest]:
        yield contraction_pb2.ContractRequest(header=self._header)
        if not self._following:
            return
        self._granted.wait()
        if self._chunk_bytes is None:
            return
        size = min(_arrays.CHUNK_BYTES, self._chunk_bytes)
        for operand in self._following:
            for chunk in _arrays.chunks(self._arrays[operand], size, operand=operand):
                yield contraction_pb2.ContractRequest(chunk=chunk)


class Outcome:
    """The result and what the server says of it."""

    def __init__(self) -> None:
        self.accepted: contraction_pb2.ContractAccepted | None = None
        self.report: contraction_pb2.ContractionReport | None = None
        self.value: np.ndarray | None = None
        self.log10_scale: float | None = None


def run(connection: Connection, header: contraction_pb2.ContractHeader,
        arrays: Sequence[np.ndarray], following: Sequence[int], *, timeout: float | None = None,
        on_progress: Callable[[contraction_pb2.ContractProgress], None] | None = None) -> Outcome:
    """Runs a call of one set. Leaving it by an exception cancels it on the server."""
    upload = _Upload(header, arrays, following)
    call = connection.stream(connection.contraction.Contract, iter(upload), timeout)
    outcome = Outcome()
    receiver: _arrays.Receiver | None = None
    try:
        for frame in frames(call):
            kind = frame.WhichOneof("frame")
            if kind == "accepted":
                outcome.accepted = frame.accepted
                upload.grant(frame.accepted.granted.max_chunk_bytes)
            elif kind == "progress":
                if on_progress is not None:
                    on_progress(frame.progress)
            elif kind == "result":
                receiver = _take(frame.result, outcome)
            elif kind == "chunk":
                if receiver is None:
                    raise TenonError("a chunk came before its result")
                receiver.add(frame.chunk)
            elif kind == "report":
                outcome.report = frame.report
            elif kind == "single":
                outcome.accepted, outcome.report = frame.single.accepted, frame.single.report
                receiver = _take(frame.single.results[0], outcome)
    finally:
        upload.grant(None)
    if receiver is None or not receiver.complete:
        raise TenonError("the answer ended before the result was complete")
    return outcome


def _take(result: contraction_pb2.ContractResult, outcome: Outcome) -> _arrays.Receiver:
    receiver = _arrays.Receiver(result.spec)
    if result.HasField("inline_data"):
        receiver.add(tensor_pb2.TensorChunk(data=result.inline_data))
    outcome.value = receiver.array
    if result.HasField("log10_scale"):
        outcome.log10_scale = result.log10_scale
    return receiver


def network(inputs: Sequence[Sequence[Any]], output: Sequence[Any],
            sizes: dict[Any, int] | None) -> plan_pb2.Network:
    """A network of the wire; indices may be anything hashable, they go by their text."""
    message = plan_pb2.Network(output=[str(name) for name in output])
    for names in inputs:
        message.operands.add(indices=[str(name) for name in names])
    held = {str(name) for names in inputs for name in names}
    for name, size in (sizes or {}).items():
        if str(name) in held:
            message.index_sizes[str(name)] = size
    return message
