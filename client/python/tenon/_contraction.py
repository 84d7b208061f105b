"""One Contract call without its transport: what goes up, and what has come down.

Synchronous and asyncio's clients send and receive the same frames: `_streams`, `_aio_streams`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenon import _arrays, _frames
from tenon.errors import InvalidRequest, TenonError
from tenon.reports import ContractionReport
from tenon.v1 import contraction_pb2, tensor_pb2

# All operands of one frame together; it stays under the contract's 4 MiB.
_MAX_INLINE_BYTES = 3 << 20

wire_type = _arrays.wire_type

_CONTRACT_DTYPES = tuple(map(np.dtype, ("float32", "float64", "complex64", "complex128")))

Request = contraction_pb2.ContractRequest | bytes


def prepare(arrays: Sequence[Any]) -> list[np.ndarray]:
    """Host arrays of a type that contraction takes: integers and booleans become float64."""
    prepared = []
    for value in arrays:
        array = _arrays.to_numpy(value)
        if array.dtype not in _CONTRACT_DTYPES:
            if array.dtype.kind in "biu":
                array = array.astype(np.float64)
            elif array.dtype == np.float16:
                array = array.astype(np.float32)
        prepared.append(array)
    return prepared


def add_operands(arrays: Sequence[np.ndarray | None], operands: Any) -> list[int]:
    """Fills specs and what is inline; returns the operands whose bytes follow. None: one without
    bytes of its own."""
    if len(arrays) != len(operands):
        raise InvalidRequest(f"{len(operands)} operands are named, {len(arrays)} are given",
                             reason="BAD_EXPRESSION", field="operands")
    following, inline = [], 0
    for number, (array, operand) in enumerate(zip(arrays, operands)):
        if array is None:
            continue
        operand.spec.dtype = _arrays.wire_type(array.dtype)
        operand.spec.shape.extend(array.shape)
        if _fits_inline(array, inline):
            operand.inline_data = array.tobytes()
            inline += array.nbytes
        elif array.size:
            following.append(number)
    return following


def _fits_inline(array: np.ndarray, taken: int) -> bool:
    return array.nbytes < _arrays.INLINE_BYTES and taken + array.nbytes <= _MAX_INLINE_BYTES


@dataclasses.dataclass
class Result:
    """The result of one set, complete."""

    set: int
    array: np.ndarray
    log10_scale: float | None
    report: contraction_pb2.SetReport | None = None


@dataclasses.dataclass
class Question:
    """A call that can be made.

    Attributes:
      header: the first frame; `arrays` its operands, of which `following` come in chunks.
      varying: the operands that every set brings anew.
      finish: makes of a `Result` what the caller gets.
      asked, names: options of the search, and the caller's names of indices, for the report.
      shared: where tensors lie in memory that is shared with the server, or None.
    """

    header: contraction_pb2.ContractHeader
    arrays: list[np.ndarray | None]
    following: list[int]
    varying: list[int] = dataclasses.field(default_factory=list)
    timeout: float | None = None
    on_progress: Callable[[contraction_pb2.ContractProgress], None] | None = None
    return_info: bool = False
    finish: Callable[[Result], Any] = lambda result: result.array
    asked: dict[str, Any] = dataclasses.field(default_factory=dict)
    names: Mapping[str, Hashable] = dataclasses.field(default_factory=dict)
    shared: Any = None

    @property
    def has_uploads(self) -> bool:
        return bool(self.following or self.varying)

    def opening(self) -> contraction_pb2.ContractRequest:
        return contraction_pb2.ContractRequest(header=self.header)

    def constants(self, granted_bytes: int) -> Iterator[Request]:
        """What follows the header: only once the server has accepted it."""
        for operand in self.following:
            array = self.arrays[operand]
            assert array is not None
            yield from _frames.chunks(array, min(_arrays.CHUNK_BYTES, granted_bytes),
                                      operand=operand)

    def set_frames(self, index: int, arrays: Sequence[np.ndarray],
                   granted_bytes: int) -> Iterator[Request]:
        """One set of the varying operands, in their order."""
        small = contraction_pb2.OperandSet(set=index)
        large, inline = [], 0
        if self.shared is not None:
            region = self.shared.place_result(index)
            if region is not None:
                small.result.CopyFrom(region)
        for operand, array in zip(self.varying, arrays, strict=True):
            region = self.shared.place(index, array) if self.shared is not None else None
            if region is not None:
                small.operands.add(operand=operand, shared=region)
            elif _fits_inline(array, inline):
                if array.size:
                    small.operands.add(operand=operand, data=array.tobytes())
                    inline += array.nbytes
            else:
                large.append((operand, array))
        if small.operands or small.HasField("result") or not large:
            yield contraction_pb2.ContractRequest(operand_set=small)
        for operand, array in large:
            yield from _frames.chunks(array, min(_arrays.CHUNK_BYTES, granted_bytes),
                                      set_index=index, operand=operand)

    def value(self, result: Result, report: contraction_pb2.ContractionReport | None) -> Any:
        value = self.finish(result)
        if not self.return_info:
            return value
        assert report is not None
        return value, ContractionReport(report, dtype=result.array.dtype.name, names=self.names,
                                        asked=self.asked, shared_memory=self.shared is not None
                                        and self.shared.used)


    def ended(self) -> None:
        """The call is over, however it ended."""
        if self.shared is not None:
            self.shared.end()


class Answer:
    """What the server has said. `take` returns each result when it is complete."""

    def __init__(self, question: Question) -> None:
        self._on_progress, self._shared = question.on_progress, question.shared
        self.accepted: contraction_pb2.ContractAccepted | None = None
        self.report: contraction_pb2.ContractionReport | None = None
        self._result: Result | None = None
        self._receiver: _arrays.Receiver | None = None

    def take(self, kind: str | None, content: Any) -> Result | None:
        if kind == "chunk":
            if self._receiver is None:
                raise TenonError("a chunk came before its result")
            self._receiver.add(content)
        elif kind == "result":
            return self._begin(content)
        elif kind == "set_report":
            return self._complete(content)
        elif kind == "accepted":
            self.accepted = content
        elif kind == "progress":
            if self._on_progress is not None:
                self._on_progress(content)
        elif kind == "report":
            self.report = content
        elif kind == "single":
            self.accepted, self.report = content.accepted, content.report
            return self._begin(content.results[0])
        return None

    def _begin(self, message: contraction_pb2.ContractResult) -> Result | None:
        scale = message.log10_scale if message.HasField("log10_scale") else None
        if message.HasField("shared"):
            return Result(message.set, self._shared.take_result(message), scale, message.report)
        self._receiver = _arrays.Receiver(message.spec)
        self._result = Result(message.set, self._receiver.array, scale)
        if message.HasField("inline_data"):
            self._receiver.add(tensor_pb2.TensorChunk(data=message.inline_data))
        return self._complete(message.report) if message.HasField("report") else None

    def _complete(self, report: contraction_pb2.SetReport) -> Result:
        result, receiver = self._result, self._receiver
        self._result = self._receiver = None
        if result is None or receiver is None or not receiver.complete:
            raise TenonError("the answer ended before the result was complete")
        result.report = report
        if self._shared is not None:
            self._shared.release(result.set)
        return result
