"""Protobuf's wire format, as far as the status details of errors and chunks need it.

No generated code for the former: the names google.rpc.* would clash with googleapis-common-protos.
For the latter it would copy every byte several times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an integer, or bytes (a view of a view). ValueError where it
    is cut off.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("cut off")
        yield number, data[at:at + size]
        at += size


def number(field: int, value: int) -> bytes:
    """An integer field that is not negative; nothing for 0."""
    return _encoded(field << 3) + _encoded(value) if value else b""


def head(field: int, size: int) -> bytes:
    """What stands before the bytes of a field."""
    return _encoded(field << 3 | 2) + _encoded(size)


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("cut off")
