"""Gap index."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.errors import InvalidRequest
from tenon.measures._direct import float_matrix, score

Metric = str | Callable[[Any, Any], float]

_SMALLEST_AREA = 1e-6  # of a share: below it a triangle's change counts as if it had this one

_ROUNDING = 1e-12  # how far below 0 Heron's radicand may be, of the longest side's 4th power


@dataclasses.dataclass(frozen=True)
class GapIndexResult:
    """The index and its regions, the m triangles of the projection.

    Attributes:
      score: the gap index.
      triangles: rows of their corners, [m, 3].
      deformations: change of the relative area, -1 to 1; positive where the projection's is larger.
      original_relative_areas, embedded_relative_areas: shares of the area of all triangles.
    """

    score: float
    triangles: np.ndarray
    deformations: np.ndarray
    original_relative_areas: np.ndarray
    embedded_relative_areas: np.ndarray


def measure(orig: Any, emb: Any, metric: Metric = "euclidean", *,
            working_memory_bytes: int | None = None) -> dict[str, float]:
    """Change of the areas of the projection's triangles (Ros et al., 2026): 0 is best.

    `metric` of the data set is a name of SciPy's, a function of two rows, or "precomputed", when
    `orig` is the matrix of distances. The projection has two columns.
    """
    return score("gap_index", orig, emb, params={"metric": metric})


def gap_index(orig: Any, emb: Any, metric: Metric = "euclidean", *,
              working_memory_bytes: int | None = None) -> float:
    """The value of `measure` alone, by the same `metric`."""
    return measure(orig, emb, metric)["gap_index"]


def compute(orig: Any, emb: Any, metric: Metric = "euclidean", *,
            working_memory_bytes: int | None = None) -> GapIndexResult:
    """The index with its regions, computed here and not on the server; needs SciPy.

    `metric` is as for `measure`.
    """
    try:
        from scipy.spatial import Delaunay, QhullError
    except ImportError:
        raise ImportError("the regions of the gap index need SciPy: pip install scipy") from None
    data, projection = float_matrix(orig, "orig"), float_matrix(emb, "emb")
    if len(data) != len(projection) or projection.shape[1] != 2:
        raise InvalidRequest(f"shapes {data.shape} and {projection.shape}; needed are as many "
                             "rows, and two columns of emb", reason="SHAPE_MISMATCH", field="emb")
    try:
        triangles = Delaunay(projection).simplices
    except QhullError:
        raise InvalidRequest("the projection has no triangles", reason="UNDEFINED_SCORE",
                             field="emb") from None
    before = _shares(data, triangles, metric)
    after = _shares(projection, triangles, "euclidean")
    larger = np.maximum(before, after)
    change = (after - before) / np.maximum(larger, _SMALLEST_AREA)
    value = float(np.clip((np.abs(change) * larger).sum() / larger.sum(), 0, 1))
    return GapIndexResult(value, triangles, np.clip(change, -1, 1), before, after)


def _shares(points: np.ndarray, triangles: np.ndarray, metric: Metric) -> np.ndarray:
    """Areas by Heron's formula, divided by their sum."""
    a, b, c = (_lengths(points, triangles[:, one], triangles[:, other], metric)
               for one, other in ((0, 1), (0, 2), (1, 2)))
    half = (a + b + c) / 2
    squared = half * (half - a) * (half - b) * (half - c)
    areas = np.sqrt(np.maximum(squared, 0))
    scale = np.maximum(np.maximum(np.maximum(a, b), c), 1) ** 4
    if (squared < -_ROUNDING * scale).any():
        raise InvalidRequest("the distances of a triangle do not satisfy the triangle inequality",
                             reason="UNDEFINED_SCORE", field="metric")
    if not np.isfinite(areas).all() or areas.sum() <= 0:
        raise InvalidRequest("the triangles have no area", reason="UNDEFINED_SCORE", field="orig")
    return areas / areas.sum()


def _lengths(points: np.ndarray, one: np.ndarray, other: np.ndarray, metric: Metric) -> np.ndarray:
    if metric == "euclidean":
        return np.linalg.norm(points[one] - points[other], axis=1)
    if metric == "precomputed":
        return points[one, other]
    function = metric if callable(metric) else _scipys(metric)
    return np.array([function(points[i], points[j]) for i, j in zip(one, other)])


def _scipys(name: str) -> Callable[[Any, Any], float]:
    from scipy.spatial import distance
    function = getattr(distance, str(name), None)
    if not callable(function):
        raise InvalidRequest(f"'{name}' is no distance of SciPy", reason="BAD_PARAMETER",
                             field="metric")
    return function
