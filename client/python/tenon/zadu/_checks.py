"""Checks of matrices and labels, with the classes of errors that zadu's programs expect."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon import _labels
from tenon.errors import InvalidRequest


def matrix(values: Any, name: str, rows: int | None = None) -> np.ndarray:
    """A finite matrix of at least two rows and one column, and of `rows` rows if that is given.

    Raises:
      InvalidRequest: a ValueError; anything of that is not so.
      TypeError: the values are no numbers.
    """
    array = np.asarray(values)
    if array.ndim != 2:
        raise _bad(f"{name} is a matrix; this has the shape {array.shape}", name, "SHAPE_MISMATCH")
    if rows is not None and len(array) != rows:
        raise _bad(f"{name} has {len(array)} rows, the data set {rows}", name, "SHAPE_MISMATCH")
    if len(array) < 2:
        raise _bad(f"{name} has {len(array)} rows, needed are 2", name, "TOO_FEW_ROWS")
    if array.shape[1] < 1:
        raise _bad(f"{name} has no column", name, "SHAPE_MISMATCH")
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{name} is of type {array.dtype}, which are no numbers")
    if not np.isfinite(array).all():
        raise _bad(f"{name} has values that are not finite", name, "NOT_FINITE")
    return array


def labels(values: Any, rows: int) -> np.ndarray:
    """One label per row, all numbers or all texts.

    Raises:
      InvalidRequest: a ValueError; the shape is another, or a number is not finite.
      TypeError: labels that can't be put in order.
    """
    array = np.asarray(values)
    if array.shape != (rows,):
        raise _bad(f"labels have the shape {array.shape}, needed is ({rows},)", "label",
                   "BAD_LABELS")
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        raise _bad("labels are finite numbers or texts", "label", "BAD_LABELS")
    _labels.to_wire(array)
    return array


def _bad(message: str, field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(message, reason=reason, field=field)
