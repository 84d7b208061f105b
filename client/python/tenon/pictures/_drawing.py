"""What all pictures share: axes, and checks of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon import _arrays, _optional
from tenon.errors import InvalidRequest


def matplotlib(module: str) -> Any:
    """A module of matplotlib, for example "collections". ImportError without it."""
    return _optional.load(f"matplotlib.{module}", "a picture")


def axes(ax: Any, size: tuple[float, float]) -> Any:
    """These axes, or new ones in a figure of this size in inches.

    Raises:
      TypeError: `ax` is something else, for example an array of axes.
    """
    if ax is None:
        return matplotlib("pyplot").subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, matplotlib("axes").Axes):
        raise TypeError(f"ax is an Axes of matplotlib, not {type(ax).__name__}")
    return ax


def numbers(values: Any, name: str, *, finite: bool = True) -> np.ndarray:
    """Real numbers in double precision.

    Raises:
      InvalidRequest: they are no real numbers, or with `finite` not all of them finite.
    """
    try:
        array = _arrays.to_numpy(values)
    except ValueError as error:  # rows of different lengths
        raise bad(f"{name} is no array: {error}", name, "SHAPE_MISMATCH") from None
    if array.dtype.kind not in "biuf":
        raise bad(f"{name} is of type {array.dtype}, needed are real numbers", name,
                  "UNSUPPORTED_DTYPE")
    array = array.astype(np.float64)
    if finite and not np.isfinite(array).all():
        raise bad(f"{name} has values that are not finite", name, "NOT_FINITE")
    return array


def plane_points(values: Any, name: str = "points") -> np.ndarray:
    """Points of a plane, shape (n, 2) with n >= 1. InvalidRequest for anything else."""
    array = numbers(values, name)
    if array.ndim != 2 or array.shape[1] != 2 or not len(array):
        raise bad(f"{name} has the shape {array.shape}, needed is (n, 2) with n >= 1", name,
                  "SHAPE_MISMATCH")
    return array


def one_per_point(values: Any, count: int, name: str) -> np.ndarray:
    """Finite numbers, shape (count,). InvalidRequest for anything else."""
    array = numbers(values, name)
    if array.shape != (count,):
        raise bad(f"{name} has the shape {array.shape}, needed is ({count},): one value per point",
                  name, "SHAPE_MISMATCH")
    return array


def bad(message: str, field: str, reason: str = "BAD_PARAMETER") -> InvalidRequest:
    return InvalidRequest(message, reason=reason, field=field)
