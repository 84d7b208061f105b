"""The frames of a Measure call that go up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenon import _arrays
from tenon._measure_header import Opening
from tenon.v1 import measurement_pb2

END, STOP = object(), object()


class Upload:
    """The request's frames, as gRPC's thread asks for them. Knows nothing of the stream's owner, so
    that an abandoned stream is collected."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._granted = threading.Event()
        self._chunk_bytes: int | None = None
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._last: Any = None  # once set, nothing else goes up

    def grant(self, chunk_bytes: int | None) -> None:
        """Lets the data set go, in chunks of at most this size."""
        self._chunk_bytes = min(_arrays.CHUNK_BYTES, chunk_bytes or _arrays.CHUNK_BYTES)
        self._granted.set()

    def put(self, item: Any) -> None:
        """A projection with its array, END or STOP."""
        self._waiting.put(item)

    def interrupt(self, last: Any) -> None:
        """Lets STOP or END be the last, in the middle of a projection too."""
        self._last = last
        self._granted.set()
        self._waiting.put(last)

    def __iter__(self) -> Iterator[measurement_pb2.MeasureRequest]:
        yield measurement_pb2.MeasureRequest(header=self._opening.header)
        self._granted.wait()
        yield from self._complete_opening()
        while self._last is None:
            item = self._waiting.get()
            if item is END:
                return
            if self._last is None:
                yield from self._projection(*item)
        if self._last is STOP:
            yield measurement_pb2.MeasureRequest(stop=measurement_pb2.MeasureStop())

    def _complete_opening(self) -> Iterator[measurement_pb2.MeasureRequest]:
        if self._opening.dataset is not None:
            for chunk in _arrays.chunks(self._opening.dataset, self._size()):
                if self._last is not None:
                    return
                yield measurement_pb2.MeasureRequest(dataset_chunk=chunk)
        for labels in self._opening.labels:
            if self._last is not None:
                return
            yield measurement_pb2.MeasureRequest(labels=labels)

    def _projection(self, message: measurement_pb2.Projection,
                    array: np.ndarray) -> Iterator[measurement_pb2.MeasureRequest]:
        yield measurement_pb2.MeasureRequest(projection=message)
        if message.HasField("inline_data"):
            return
        for chunk in _arrays.chunks(array, self._size(), set_index=message.index):
            if self._last is not None:
                return
            yield measurement_pb2.MeasureRequest(projection_chunk=chunk)

    def _size(self) -> int:
        return self._chunk_bytes or _arrays.CHUNK_BYTES
