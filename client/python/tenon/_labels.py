"""Labels, from anything like a vector to the wire's three kinds."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tenon import _arrays
from tenon.errors import InvalidRequest
from tenon.v1 import measurement_pb2

_PART_BYTES = 1 << 20  # of a message, well below its limit


def to_wire(labels: Any) -> list[measurement_pb2.Labels]:
    """The labels in parts, each fit for one message; at least one part.

    Raises:
      InvalidRequest: not one-dimensional, or numbers that don't fit.
      TypeError: neither numbers nor texts, or both.
    """
    array = labels if isinstance(labels, np.ndarray) else np.asarray(_host(labels))
    if array.ndim != 1:
        raise InvalidRequest(f"labels have one axis; these have the shape {array.shape}",
                             reason="BAD_LABELS", field="labels")
    kind = array.dtype.kind if array.dtype.kind != "O" else _kind_of_objects(array)
    if kind in "biu":
        if kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise InvalidRequest("labels are whole numbers below 2^63", reason="BAD_LABELS",
                                 field="labels")
        return [measurement_pb2.Labels(int64s=measurement_pb2.Int64Labels(values=part))
                for part in _number_parts(array.astype(np.int64))]
    if kind == "f":
        return [measurement_pb2.Labels(doubles=measurement_pb2.DoubleLabels(values=part))
                for part in _number_parts(array.astype(np.float64))]
    if kind in "US":
        # Latin-1 keeps the order of the bytes.
        texts = [text.decode("latin-1") if isinstance(text, bytes) else str(text)
                 for text in array.tolist()]
        return [measurement_pb2.Labels(strings=measurement_pb2.StringLabels(values=part))
                for part in _text_parts(texts)]
    raise TypeError(f"labels of type {array.dtype} are neither numbers nor texts")


def _host(labels: Any) -> Any:
    return _arrays.to_numpy(labels) if hasattr(labels, "__dlpack__") else labels


def _kind_of_objects(array: np.ndarray) -> str:
    for kind, expected in (("i", numbers.Integral), ("f", numbers.Real), ("U", str),
                           ("S", bytes)):
        if all(isinstance(value, expected) for value in array):
            return kind
    raise TypeError("labels are all numbers or all texts; these can't be put in order")


def _number_parts(values: np.ndarray) -> list[list[Any]]:
    rows = _PART_BYTES // 10  # the longest form of a number
    return [values[at:at + rows].tolist() for at in range(0, max(1, len(values)), rows)]


def _text_parts(texts: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    size = 0
    for text in texts:
        size += 4 * len(text) + 6
        if size > _PART_BYTES and parts[-1]:
            parts.append([])
            size = 4 * len(text) + 6
        parts[-1].append(text)
    return parts
