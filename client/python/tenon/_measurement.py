"""The results of one Measure call: projections go up as they come down, few of them in between."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import grpc
import numpy as np

from tenon import _arrays, errors
from tenon._connection import Connection
from tenon._measure_header import Opening
from tenon._measure_upload import END, STOP, Upload
from tenon.datasets import data_array
from tenon.errors import InvalidRequest, TenonError
from tenon.scores import MeasurementReport, Scores
from tenon.v1 import measurement_pb2, tensor_pb2

__all__ = ["MeasureStream", "named_projections"]

OnProgress = Callable[[measurement_pb2.MeasureProgress], None]


def named_projections(projections: Any) -> Iterator[tuple[str, Any]]:
    """Pairs of name and array: of a mapping, of pairs, of arrays, or of the one matrix given."""
    if isinstance(projections, Mapping):
        return iter([(str(name), value) for name, value in projections.items()])
    if getattr(projections, "ndim", None) == 2:
        return iter([("", projections)])
    if isinstance(projections, (str, bytes)) or not isinstance(projections, Iterable):
        raise TypeError("projections are an iterable of matrices, not "
                        + type(projections).__name__)
    return _Named(iter(projections))


class _Named(Iterator[tuple[str, Any]]):
    """Closes what it iterates over when it is closed itself."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source

    def __next__(self) -> tuple[str, Any]:
        item = next(self._source)
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            return item
        return "", item

    def close(self) -> None:
        close = getattr(self._source, "close", None)
        if close is not None:
            close()


# Measures with two scores have a first one; maps of the wire have no order.
_FIRST_KEYS = {"trustworthiness", "mrre_false", "ca_trustworthiness", "steadiness",
               "label_trustworthiness"}


def ordered(values: Mapping[str, Any]) -> dict[str, Any]:
    """By key, in the order of the documentation."""
    return dict(sorted(values.items(),
                       key=lambda item: item[0].removeprefix("local_") not in _FIRST_KEYS))


class MeasureStream(Iterator[Scores]):
    """The results of a measurement, in order, while projections are read as there is room for them.

    Projections are taken from their source inside of ``next()``, in the caller's own thread, and at
    most a few ahead of the result that is returned: the source may be a generator without end.

    `close` ends early and in order: what is in flight is finished, and the report told. An
    exception inside of ``next()``, Ctrl-C too, or inside of a ``with`` statement cancels the call.

    Attributes:
      accepted: the message ``tenon.v1.MeasureAccepted``, when the server has sent it; else None.
      report: the `MeasurementReport` when the call has ended well; else None.
    """

    def __init__(self, connection: Connection, opening: Opening,
                 projections: Iterator[tuple[str, Any]] | None, *, timeout: float | None,
                 raise_errors: bool = False, on_progress: OnProgress | None = None) -> None:
        self.accepted: measurement_pb2.MeasureAccepted | None = None
        self.report: MeasurementReport | None = None
        self._connection, self._opening, self._timeout = connection, opening, timeout
        self._projections = projections  # None: the server reads them itself
        self._raise_errors, self._on_progress = raise_errors, on_progress
        execution = opening.header.execution
        self._window = execution.in_flight if execution.HasField("in_flight") else None
        self._pending: collections.deque[tuple[int, str, TenonError | None]] = collections.deque()
        self._read = itertools.count()
        self._sent = itertools.count()
        self._exhausted = projections is None
        self._upload = Upload(opening)
        self._call: Any = None
        self._done = False

    def __next__(self) -> Scores:
        if self._done:
            raise StopIteration
        try:
            self._fill()
            result = self._local_error() or self._receive()
        except BaseException:
            self.cancel()
            raise
        if result is None:
            raise StopIteration
        if self._raise_errors and result.error is not None:
            self.cancel()
            raise result.error
        return result

    def close(self) -> None:
        """Sends no more projections and waits for the report; results that come are dropped."""
        if self._call is None or self._done:
            self._end()
            return
        self._exhausted = True
        self._upload.interrupt(STOP)
        try:
            while self._receive() is not None:
                pass
        except TenonError:
            self._end()
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends at once, on the server too."""
        if self._call is not None and not self._done:
            self._call.cancel()
        self._end()

    def __enter__(self) -> MeasureStream:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.cancel()

    def __del__(self) -> None:
        if not getattr(self, "_done", True) and self._call is not None:
            self._call.cancel()
            self._upload.interrupt(END)

    def _end(self) -> None:
        if self._done:
            return
        self._done = self._exhausted = True
        self._pending.clear()
        self._upload.interrupt(END)
        close = getattr(self._projections, "close", None)
        if close is not None:
            close()

    def _fill(self) -> None:
        """Reads projections while there is room for them."""
        if self._call is None:
            self._call = self._connection.stream(self._connection.measurement.Measure,
                                                 iter(self._upload), self._timeout)
        while not self._exhausted and len(self._pending) < self._width():
            try:
                name, value = next(self._projections)  # type: ignore[arg-type]
            except StopIteration:
                self._exhausted = True
                self._upload.put(END)
                return
            self._send(next(self._read), name, value)

    def _width(self) -> int:
        if self._window is not None:
            return self._window
        # One more than the server works on, so that it never waits for the next.
        return 1 + (self.accepted.memory.in_flight if self.accepted is not None else 0)

    def _send(self, index: int, name: str, value: Any) -> None:
        try:
            array = data_array(value)
        except InvalidRequest as error:
            self._pending.append((index, name, error))
            return
        message = measurement_pb2.Projection(index=next(self._sent), name=name,
                                             spec=_arrays.spec_of(array))
        if array.nbytes < _arrays.INLINE_BYTES:
            message.inline_data = array.tobytes()
        self._upload.put((message, array))
        self._pending.append((index, name, None))

    def _local_error(self) -> Scores | None:
        """The result that is due, when it is of a projection that could not be sent."""
        if not self._pending or self._pending[0][2] is None:
            return None
        index, name, error = self._pending.popleft()
        return Scores(index, name, error=error)

    def _receive(self) -> Scores | None:
        """The next result; None: the call has ended."""
        while (frame := self._next_frame()) is not None:
            kind = frame.WhichOneof("frame")
            if kind == "accepted":
                self.accepted = frame.accepted
                self._upload.grant(frame.accepted.granted.max_chunk_bytes)
                self._fill()
            elif kind == "scores":
                return self._scores(frame.scores)
            elif kind == "item_error":
                return self._failed(frame.item_error)
            elif kind == "progress":
                if self._on_progress is not None:
                    self._on_progress(frame.progress)
            elif kind == "summary":
                self.report = MeasurementReport(frame.summary)
                self._upload.put(END)
        self._end()
        return None

    def _next_frame(self) -> measurement_pb2.MeasureResponse | None:
        try:
            return next(self._call, None)
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None

    def _scores(self, message: measurement_pb2.MeasureScores) -> Scores:
        local: list[Any] = [None] * len(message.specs) if self._opening.header.return_local else []
        for number, part in enumerate(message.local_arrays):
            values = local[part.spec] = local[part.spec] or {}
            values[part.key] = self._local_array(part, number)
        return Scores(
            self._index_of(message), message.name, [ordered(part.values) for part in message.specs],
            [ordered(values) if values else None for values in local],
            [part.seed if part.HasField("seed") else None for part in message.specs],
            [errors.from_detail(part.error) if part.HasField("error") else None
             for part in message.specs],
            run_info=message.run_info if message.HasField("run_info") else None)

    def _local_array(self, part: measurement_pb2.LocalArray, number: int) -> np.ndarray:
        receiver = _arrays.Receiver(part.tensor)
        if part.HasField("inline_data"):
            receiver.add(tensor_pb2.TensorChunk(data=part.inline_data))
        while not receiver.complete:
            frame = self._next_frame()
            if (frame is None or not frame.HasField("local_chunk")
                    or frame.local_chunk.operand != number):
                raise TenonError("the chunks of local scores came out of order")
            receiver.add(frame.local_chunk)
        return receiver.array

    def _failed(self, message: measurement_pb2.MeasureItemError) -> Scores:
        return Scores(self._index_of(message), message.name,
                      error=errors.from_detail(message.error))

    def _index_of(self, message: Any) -> int:
        """The caller's index: what could not be sent has none on the server."""
        return self._pending.popleft()[0] if self._projections is not None else message.index
