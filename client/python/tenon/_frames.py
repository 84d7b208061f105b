"""Frames of Contract as they cross the wire; chunks without copies by protobuf.

A chunk of 1 MiB would be copied four times by the generated classes, in each direction; here it is
once on its way out, and lies where gRPC received it on its way in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tenon import _wire
from tenon.v1 import contraction_pb2

METHOD = "/tenon.v1.ContractionService/Contract"

_CHUNK_IN_REQUEST = contraction_pb2.ContractRequest.DESCRIPTOR.fields_by_name["chunk"].number
_CHUNK_IN_RESPONSE = contraction_pb2.ContractResponse.DESCRIPTOR.fields_by_name["chunk"].number
_RESPONSE_CHUNK_TAG = _CHUNK_IN_RESPONSE << 3 | 2


@dataclasses.dataclass
class Chunk:
    """A received TensorChunk; `data` shows the bytes of the frame."""

    set: int = 0
    operand: int = 0
    offset_bytes: int = 0
    data: Any = b""


def serialize(request: contraction_pb2.ContractRequest | bytes) -> bytes:
    """Messages, and chunks that `chunks` has encoded."""
    return request if isinstance(request, bytes) else request.SerializeToString()


def deserialize(data: bytes) -> tuple[str | None, Any]:
    """The kind of a response's frame, and what is in it: a message, or a `Chunk`."""
    if data and data[0] == _RESPONSE_CHUNK_TAG:
        return "chunk", _read_chunk(memoryview(data))
    response = contraction_pb2.ContractResponse.FromString(data)
    kind = response.WhichOneof("frame")
    return kind, getattr(response, kind) if kind else None


def method(channel: Any) -> Callable[..., Any]:
    """Contract on a channel, synchronous or asyncio's."""
    return channel.stream_stream(METHOD, request_serializer=serialize,
                                 response_deserializer=deserialize)


def header_only(channel: Any) -> Callable[..., Any]:
    """Contract where nothing follows the header. The same bytes on the wire; but gRPC needs no
    thread that asks for further frames, which is most of a small call's time.
    """
    return channel.unary_stream(METHOD, request_serializer=serialize,
                                response_deserializer=deserialize)


def chunks(array: np.ndarray, chunk_bytes: int, *, set_index: int = 0,
           operand: int = 0) -> Iterator[bytes]:
    """The bytes of an array as encoded requests, in order; nothing for an empty one."""
    view = memoryview(array.reshape(-1).view(np.uint8)) if array.size else memoryview(b"")
    where = _wire.number(1, set_index) + _wire.number(2, operand)
    for offset in range(0, len(view), chunk_bytes):
        data = view[offset:offset + chunk_bytes]
        head = where + _wire.number(3, offset) + _wire.head(4, len(data))
        yield b"".join((_wire.head(_CHUNK_IN_REQUEST, len(head) + len(data)), head, data))


def _read_chunk(frame: memoryview) -> Chunk:
    chunk = Chunk()
    names = {1: "set", 2: "operand", 3: "offset_bytes", 4: "data"}
    _, inner = next(_wire.fields(frame))
    for number, value in _wire.fields(inner):
        if number in names:
            setattr(chunk, names[number], value)
    return chunk
