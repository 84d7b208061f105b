"""Where the tensors of one call lie in shared memory. What has no place there is sent."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np

from tenon import _arrays
from tenon._contraction import Question
from tenon.errors import TenonError
from tenon.shared_memory import Place, SharedMemory
from tenon.v1 import contraction_pb2, tensor_pb2

_FEATURE = "shared_memory"
# Set of tensors that stay for the whole call.
_WHOLE_CALL = -1


class Sharing:
    """The pool of a client, made when it is first needed. Thread-safe.

    Attributes:
      reason: why tensors are sent although the caller asked for shared memory; None: they are not.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self.pool: SharedMemory | None = None
        self.reason: str | None = "nothing was shared yet"

    def open(self, info: Any) -> SharedMemory | None:
        """The pool; None, and a reason, where the server shares none."""
        with self._lock:
            if self.pool is None:
                feature = next((f for f in info.features if f.name == _FEATURE), None)
                if feature is None or not feature.available:
                    self.reason = feature.detail if feature is not None else "the server is too old"
                    return None
                try:
                    self.pool = SharedMemory(feature.detail, self._size_bytes)
                except TenonError as error:
                    self.reason = str(error)
                    return None
                self.reason = None
            return self.pool

    def place(self, question: Question, info: Any, result_bytes: int) -> Question:
        """The same question with its large tensors in the pool; or as it is."""
        pool = self.open(info)
        try:
            token = pool.token() if pool is not None else b""
        except TenonError as error:
            self.reason = str(error)
            return question
        if pool is None:
            return question
        self.reason = None
        placement = Placement(pool, result_bytes)
        header = contraction_pb2.ContractHeader()
        header.CopyFrom(question.header)
        header.shared_pool = token
        operands = getattr(header, header.WhichOneof("expression")).operands
        following = []
        for number in question.following:
            region = placement.place(_WHOLE_CALL, question.arrays[number])
            if region is None:
                following.append(number)
            else:
                operands[number].shared.CopyFrom(region)
        if not question.varying:
            region = placement.place_result(0)
            if region is not None:
                header.result.shared.CopyFrom(region)
        return dataclasses.replace(question, header=header, following=following, shared=placement)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()


def refuses_pool(error: TenonError) -> bool:
    """Whether the server does not (or no longer) share the pool: the call will do without it."""
    return error.field == "header.shared_pool" and error.reason in ("NOT_FOUND", "NOT_IMPLEMENTED")


class Placement:
    """The places of one call. Used by the thread that writes and by the one that reads."""

    def __init__(self, pool: SharedMemory, result_bytes: int) -> None:
        self._pool, self._result_bytes = pool, result_bytes
        self._lock = threading.Lock()
        self._copies: dict[int, list[Place]] = {}
        self._results: dict[int, Place] = {}
        self.used = False

    def place(self, set_index: int, array: np.ndarray | None) -> tensor_pb2.SharedRegion | None:
        """Where the bytes lie already, or a copy of them; None: too few, or no room."""
        if array is None or array.nbytes < _arrays.INLINE_BYTES:
            return None
        region = self._pool.region(array)
        if region is None:
            copy = self._pool.allocate(array.shape, array.dtype)
            if copy is None:
                return None
            copy.array[...] = array
            region = copy.region()
            with self._lock:
                self._copies.setdefault(set_index, []).append(copy)
        self.used = True
        return region

    def place_result(self, set_index: int) -> tensor_pb2.SharedRegion | None:
        if self._result_bytes < _arrays.INLINE_BYTES:
            return None
        place = self._pool.allocate((self._result_bytes,), np.dtype(np.uint8))
        if place is None:
            return None
        with self._lock:
            self._results[set_index] = place
        self.used = True
        return place.region()

    def take_result(self, message: contraction_pb2.ContractResult) -> np.ndarray:
        """The result where the server has written it; what the set needed is free for others."""
        with self._lock:
            place = self._results.pop(message.set, None)
            self._copies.pop(message.set, None)
        if place is None or place.offset != message.shared.offset_bytes:
            raise TenonError("the result lies in a place that was not asked for")
        return place.array.view(_arrays.numpy_type(message.spec.dtype)).reshape(
            tuple(message.spec.shape))

    def release(self, set_index: int) -> None:
        """The result of this set was sent: its places serve others."""
        with self._lock:
            self._copies.pop(set_index, None)
            self._results.pop(set_index, None)

    def end(self) -> None:
        """The call is over. Places that it may still write to wait for their time."""
        with self._lock:
            results, self._results = self._results, {}
            self._copies.clear()
        for place in results.values():
            self._pool.retire(place)
