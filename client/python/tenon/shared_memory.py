"""Memory that is shared with a server on the same host: tensors lie there instead of being sent.

The protocol, and what both sides promise, stands in ``tenon/v1/shared_memory.proto``.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import math
import mmap
import os
import select
import socket
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon import errors
from tenon.errors import InvalidRequest, Refused, TenonError, Unavailable
from tenon.v1 import errors_pb2, shared_memory_pb2, tensor_pb2

__all__ = ["SharedMemory"]

_VERSION = 1
_ALIGNMENT = 64
_ANSWER_SECONDS = 10.0
_ANSWER_BYTES = 4096


class SharedMemory:
    """A pool of memory that a server has mapped too. Thread-safe.

    It is made once and used again and again: fresh pages cost more than sending does. Arrays from
    `empty`, and results, lie in it until they are collected; what has no room is sent.

    Args:
      path: the server's socket for shared memory.
      size_bytes: of the pool, rounded up to pages.

    Raises:
      Unavailable: nobody answers at the path.
      Refused: the system or the server has not so much memory; see the contract's
        ``SharedMemoryWelcome``.
    """

    def __init__(self, path: str, size_bytes: int) -> None:
        if size_bytes < 1:
            raise InvalidRequest(f"a pool of {size_bytes} bytes", reason="BAD_PARAMETER",
                                 field="shared_memory")
        self._path = path
        self.size_bytes = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._lock = threading.Lock()
        self._free = {0: self.size_bytes}  # bytes by offset; neighbours are one piece
        self._retired: list[Place] = []
        # Places are given back whenever the collector runs, so without a lock.
        self._returned: collections.deque[tuple[int, int]] = collections.deque()
        self._handles = _Handles(_make_memory(self.size_bytes))
        self._close = weakref.finalize(self, self._handles.close)
        try:
            self._token = self._introduce()
            self._map = mmap.mmap(self._handles.memory, self.size_bytes,
                                  flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        except BaseException:
            self._close()
            raise
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    @property
    def free_bytes(self) -> int:
        """Bytes of the pool that nothing lies in."""
        with self._lock:
            self._take_returned()
            return sum(self._free.values())

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """An array in the pool, as ``numpy.empty``: as an operand it is neither copied nor sent.

        `shape` and `dtype` are NumPy's.
        It must stay as it is until the call that uses it has answered.

        Raises:
          Refused: the pool has no room for it now.
        """
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        place = self.allocate(shape, np.dtype(dtype))
        if place is None:
            raise Refused(f"the pool of {self.size_bytes} bytes has no room for an array of "
                          f"{shape} {np.dtype(dtype)} now", reason="EXCEEDS_MEMORY_BUDGET")
        return place.array

    def allocate(self, shape: Sequence[int], dtype: np.dtype) -> Place | None:
        """Room for an array of this shape and dtype; None: there is none.

        It is given back when the array and all its views are gone.
        """
        size = math.prod(shape) * dtype.itemsize
        needed = -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        with self._lock:
            self._take_returned()
            offset = next((place for place, free in sorted(self._free.items()) if free >= needed),
                          None)
            if offset is None:
                return None
            left = self._free.pop(offset) - needed
            if left:
                self._free[offset + needed] = left
        # NumPy's views refer to what owns the bytes, not to the array that they are views of.
        owner = (ctypes.c_char * max(size, 1)).from_buffer(self._map, offset)
        array = np.frombuffer(owner, dtype, math.prod(shape)).reshape(tuple(shape))
        return Place(array, offset, needed,
                     weakref.finalize(owner, self._returned.append, (offset, needed)))

    def region(self, array: np.ndarray) -> tensor_pb2.SharedRegion | None:
        """Where the bytes of an array lie in the pool; None: not there, or not aligned."""
        offset = array.__array_interface__["data"][0] - self._address
        if not 0 <= offset <= self.size_bytes - array.nbytes or offset % _ALIGNMENT:
            return None
        return tensor_pb2.SharedRegion(offset_bytes=offset, size_bytes=array.nbytes)

    def token(self) -> bytes:
        """The pool's token; introduces the pool anew when the connection has ended.

        Raises:
          TenonError: the server does not take it (now).
        """
        with self._lock:
            if self._handles.connected():
                return self._token
            self._token = self._introduce()
            # Whatever wrote for a call that was given up is over now.
            retired, self._retired = self._retired, []
        self._returned.extend((place.offset, place.size) for place in retired)
        return self._token

    def retire(self, place: Place) -> None:
        """The server may still write there, since its call was given up: the place is free again
        once the server has taken the pool anew.
        """
        if place.finalizer.detach() is None:
            return
        with self._lock:
            self._retired.append(place)
            self._handles.disconnect()

    def close(self) -> None:
        """Ends the connection; arrays in the pool stay as they are."""
        self._close()

    def _introduce(self) -> bytes:
        connection, token = _introduce(self._path, self._handles.memory)
        self._handles.connection = connection
        return token

    def _take_returned(self) -> None:
        while self._returned:
            offset, size = self._returned.popleft()
            size += self._free.pop(offset + size, 0)
            before = next((place for place, free in self._free.items() if place + free == offset),
                          None)
            if before is None:
                self._free[offset] = size
            else:
                self._free[before] += size


@dataclasses.dataclass
class Place:
    """An array in a pool, and what gives its bytes back."""

    array: np.ndarray
    offset: int
    size: int
    finalizer: weakref.finalize

    def region(self) -> tensor_pb2.SharedRegion:
        return tensor_pb2.SharedRegion(offset_bytes=self.offset, size_bytes=self.array.nbytes)


class _Handles:
    """The descriptors of a pool."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.connection: socket.socket | None = None

    def connected(self) -> bool:
        """Nothing is sent after the welcome: whatever there is to read is the end."""
        if self.connection is None:
            return False
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return not poll.poll(0)

    def disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        self.disconnect()
        os.close(self.memory)


def _make_memory(size_bytes: int) -> int:
    """A memfd of this size that can neither shrink nor grow any more."""
    try:
        import fcntl  # neither is everywhere

        memory = os.memfd_create("tenon-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (AttributeError, ImportError, OSError) as error:
        raise errors.Unsupported(f"this system has no memory to share: {error}") from None
    try:
        os.ftruncate(memory, size_bytes)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except (OSError, OverflowError) as error:
        os.close(memory)
        raise Refused(f"the system refused {size_bytes} bytes of shared memory: {error}",
                      reason="EXCEEDS_MEMORY_BUDGET") from None
    return memory


def _introduce(path: str, memory: int) -> tuple[socket.socket, bytes]:
    """The connection that keeps the pool alive, and the pool's token."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(path)
        hello = shared_memory_pb2.SharedMemoryHello(version=_VERSION).SerializeToString()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # A refusal may be there already, and the connection closed.
            socket.send_fds(connection, [hello], [memory])
        answer = _receive(connection)
        if not answer:
            raise OSError("the connection ended without an answer")
    except (OSError, ValueError) as error:
        connection.close()
        raise Unavailable(f"no server answers at '{path}' for shared memory: {error}") from None
    except BaseException:
        connection.close()
        raise
    welcome = shared_memory_pb2.SharedMemoryWelcome.FromString(answer)
    if not welcome.pool:
        connection.close()
        raise _refusal(welcome.error)
    return connection, welcome.pool


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(_ANSWER_BYTES)
    except ConnectionResetError:
        # The server has closed without reading the hello; its refusal stands behind that error.
        return connection.recv(_ANSWER_BYTES)


def _refusal(detail: errors_pb2.ErrorDetail) -> TenonError:
    return Refused(detail.message, reason=detail.reason, field=detail.field,
                   metadata=dict(detail.metadata))
