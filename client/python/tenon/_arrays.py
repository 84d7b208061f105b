"""Between arrays of any library and the tensors of the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenon.errors import InvalidRequest, TenonError
from tenon.v1 import tensor_pb2

INLINE_BYTES = 1 << 16  # exclusive: the contract's limit for one tensor inside a message
CHUNK_BYTES = 1 << 20

_TYPES = {np.dtype(name): getattr(tensor_pb2, "DATA_TYPE_" + name.upper())
          for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                       "uint64", "float32", "float64", "complex64", "complex128")}
_NUMPY = {value: dtype for dtype, value in _TYPES.items()}


def to_numpy(value: Any) -> np.ndarray:
    """A host array of anything: NumPy, DLPack (torch, JAX; CuPy through the host), buffers, lists.

    Little-endian and in C order; a copy only where that is not so already, or the values lie on a
    device.
    """
    if not isinstance(value, np.ndarray):
        value = _import(value)
    if value.dtype.byteorder == ">" or (value.dtype.byteorder == "=" and not _LITTLE):
        value = value.astype(value.dtype.newbyteorder("<"))
    # ascontiguousarray would make a scalar one-dimensional.
    return value if value.flags.c_contiguous else np.array(value, order="C")


_LITTLE = np.dtype("<i4").isnative


def _import(value: Any) -> np.ndarray:
    if hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):
        return value.get()  # CuPy: NumPy can't take what lies on a device
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()  # torch: neither gradients nor devices
        if hasattr(value, "resolve_conj"):
            value = value.resolve_conj().resolve_neg()
        return value.numpy()
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def wire_type(dtype: Any) -> int:
    """The contract's number for an element type."""
    try:
        return _TYPES[np.dtype(dtype).newbyteorder("=")]
    except (KeyError, TypeError):
        raise InvalidRequest(f"element type {dtype} has no counterpart on the wire",
                             reason="UNSUPPORTED_DTYPE") from None


def numpy_type(number: int) -> np.dtype:
    return _NUMPY[number]


def spec_of(array: np.ndarray) -> tensor_pb2.TensorSpec:
    return tensor_pb2.TensorSpec(dtype=wire_type(array.dtype), shape=array.shape)


def chunks(array: np.ndarray, chunk_bytes: int = CHUNK_BYTES, *, set_index: int = 0,
           operand: int = 0) -> Iterator[tensor_pb2.TensorChunk]:
    """The bytes in order; nothing for an empty array."""
    view = memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(b"")
    for offset in range(0, len(view), chunk_bytes):
        yield tensor_pb2.TensorChunk(set=set_index, operand=operand, offset_bytes=offset,
                                     data=bytes(view[offset:offset + chunk_bytes]))


class Receiver:
    """An array that arrives in chunks."""

    def __init__(self, spec: tensor_pb2.TensorSpec) -> None:
        self.array = np.empty(tuple(spec.shape), numpy_type(spec.dtype))
        self._bytes = (memoryview(self.array.reshape(-1).view(np.uint8)) if self.array.size
                       else memoryview(bytearray()))
        self._at = 0

    def add(self, chunk: tensor_pb2.TensorChunk) -> None:
        end = self._at + len(chunk.data)
        if chunk.offset_bytes != self._at or end > len(self._bytes):
            raise TenonError(f"a chunk at {chunk.offset_bytes} of {len(chunk.data)} bytes; expected "
                             f"is {self._at} of {len(self._bytes)}")
        self._bytes[self._at:end] = chunk.data
        self._at = end

    @property
    def complete(self) -> bool:
        return self._at == len(self._bytes)
