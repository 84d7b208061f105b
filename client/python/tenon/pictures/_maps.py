"""Projections, coloured by where their neighbourhoods are wrong."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from tenon import _optional
from tenon.pictures import _colours, _drawing
from tenon.pictures._local_scores import LocalPair, local_pair

_SIZE = (6.4, 4.8)
_MARGIN = 0.05  # around the points, in parts of their extent


def checkviz(points: Any, trustworthiness: Any, continuity: Any = None, ax: Any = None, *,
             measure: Any = None, limit: float | None = None, legend: bool = True,
             point_size: float = 4.0) -> Any:
    """The cell of every point in the colour of its distortions.

    White: neighbours are right; violet: false ones (low trustworthiness); green: missing ones (low
    continuity); black: both. Cells are Voronoi cells; points that coincide share one, with the mean
    of their scores. After S. Lespinats, M. Aupetit: CheckViz: sanity check and topological clues
    for linear and non-linear mappings, Computer Graphics Forum 30 (2011), with colours of our own.

    Args:
      points: the projection, n x 2.
      trustworthiness: local scores of false neighbours, n values, best 1; or, without
        `continuity`, a `Scores`, a result of `ZADU`, or a dict of local scores.
      continuity: local scores of missing neighbours, n values, best 1.
      ax: where to draw.
      measure: the measure whose local scores count ("tnc", "mrre", "ca_tnc", "snc"), if there are
        several; default: the first.
      limit: the distortion, 1 - score, that gets the full colour; default: the largest one. Give it
        where pictures are to be compared.
      legend: whether the scale is drawn beside the axes.
      point_size: area of the points' marks, in square points; 0: none.

    Returns:
      The axes: a ``PolyCollection`` of cells, in lexical order of the points, then the points.
    """
    plane = _drawing.plane_points(points)
    pair = local_pair(trustworthiness, continuity, measure, len(plane))
    scale = _scale(pair, limit)
    sites, cell_of_point = np.unique(plane, axis=0, return_inverse=True)
    cell_of_point = cell_of_point.reshape(-1)
    corners, drawn = _cells(sites)
    colours = _colours.two_values(
        _means(1 - pair.false, cell_of_point)[drawn] / scale,
        _means(1 - pair.missing, cell_of_point)[drawn] / scale)
    ax = _plane_axes(ax, plane)
    ax.add_collection(_drawing.matplotlib("collections").PolyCollection(
        corners, facecolors=colours, edgecolors=colours, linewidths=0.2, zorder=1), autolim=False)
    _finish(ax, plane, point_size, legend, pair, scale)
    return ax


def reliability_map(points: Any, trustworthiness: Any, continuity: Any = None, ax: Any = None, *,
                    k: int = 7, measure: Any = None, limit: float | None = None,
                    legend: bool = True, point_size: float = 4.0, line_width: float = 2.0) -> Any:
    """The neighbourhood graph of a projection, each edge in the colour of its ends' distortions.

    Colours are those of `checkviz`, of the mean scores of both ends, on grey. After H. Jeon,
    H.-K. Ko, J. Jo, Y. Kim, J. Seo: Measuring and explaining the inter-cluster reliability of
    multidimensional projections, IEEE TVCG 28 (2022).

    Args:
      points: the projection, n x 2.
      trustworthiness, continuity: local scores, as for `checkviz`.
      ax: where to draw.
      k: neighbours of each point that it is joined with, 1 <= k < n.
      measure, limit, legend, point_size: as for `checkviz`.
      line_width: of edges, in points.

    Returns:
      The axes: a ``LineCollection`` with each edge once, by the numbers of its ends; the points.
    """
    plane = _drawing.plane_points(points)
    pair = local_pair(trustworthiness, continuity, measure, len(plane))
    scale = _scale(pair, limit)
    ends = _edges(plane, k)
    colours = _colours.two_values((1 - pair.false[ends].mean(axis=1)) / scale,
                                  (1 - pair.missing[ends].mean(axis=1)) / scale)
    ax = _plane_axes(ax, plane)
    ax.set_facecolor("0.75")
    ax.add_collection(_drawing.matplotlib("collections").LineCollection(
        plane[ends], colors=colours, linewidths=line_width, zorder=1), autolim=False)
    _finish(ax, plane, point_size, legend, pair, scale)
    return ax


def _scale(pair: LocalPair, limit: float | None) -> float:
    if limit is None:
        largest = float(max((1 - pair.false).max(), (1 - pair.missing).max()))
        return largest if largest > 0 else 1.0
    if isinstance(limit, bool) or not isinstance(limit, Real) or not 0 < limit < np.inf:
        raise _drawing.bad(f"limit is {limit!r}, needed is a finite number above 0", "limit")
    return float(limit)


def _means(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    return np.bincount(groups, weights=values) / np.bincount(groups)


def _cells(sites: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Corners of the Voronoi cells of different points, and the points that have one.

    Points that differ by rounding alone may have none.
    """
    middle, extent = _frame(sites)
    near = (sites - middle) / extent
    # Sites far outside close the cells at the rim; their own begin well outside of the picture.
    far = 10.0 * np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])
    diagram = _optional.load("scipy.spatial", "a map of neighbours").Voronoi(
        np.concatenate([near, far]))
    corners, drawn = [], []
    for site, region in enumerate(diagram.point_region[:len(sites)]):
        vertices = diagram.regions[region] if region >= 0 else []
        if vertices and -1 not in vertices:
            corners.append(diagram.vertices[vertices] * extent + middle)
            drawn.append(site)
    return corners, np.array(drawn, dtype=int)


def _frame(points: np.ndarray) -> tuple[np.ndarray, float]:
    """Middle, and the longer side of the box around the points; 1 where they coincide."""
    low, high = points.min(axis=0), points.max(axis=0)
    with np.errstate(over="ignore"):
        extent = float((high - low).max())
    if not np.isfinite(extent):
        raise _drawing.bad("points are too far apart", "points", "NOT_FINITE")
    return low / 2 + high / 2, extent if extent > 0 else 1.0


def _edges(points: np.ndarray, k: int) -> np.ndarray:
    """Pairs i < j where one is among the k nearest of the other, each once, in order."""
    count = len(points)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k < count:
        raise _drawing.bad(f"k is {k!r} with n = {count} points, needed is an integer, 1 <= k < n",
                           "k", "K_OUT_OF_RANGE")
    middle, extent = _frame(points)
    near = (points - middle) / extent
    tree = _optional.load("scipy.spatial", "a map of neighbours").cKDTree(near)
    nearest = tree.query(near, k + 1)[1]
    own = nearest == np.arange(count)[:, np.newaxis]
    # Where more than k points coincide, a point may be missing in its own list.
    own[~own.any(axis=1), -1] = True
    pairs = np.stack([np.repeat(np.arange(count), k), nearest[~own]], axis=1)
    return np.unique(np.sort(pairs, axis=1), axis=0)


def _plane_axes(ax: Any, points: np.ndarray) -> Any:
    middle, extent = _frame(points)
    ax = _drawing.axes(ax, _SIZE)
    half = extent * (0.5 + _MARGIN)
    ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half),
           xticks=[], yticks=[], aspect="equal")
    return ax


def _finish(ax: Any, points: np.ndarray, point_size: float, legend: bool, pair: LocalPair,
            scale: float) -> None:
    if point_size:
        ax.scatter(*points.T, s=point_size, c="black", linewidths=0, alpha=0.6, zorder=2)
    if legend:
        _add_legend(ax, pair, scale)


def _add_legend(ax: Any, pair: LocalPair, scale: float) -> None:
    """The colours as a square, beside the axes."""
    steps = np.linspace(0, 1, 64)
    square = ax.inset_axes([1.2, 0.6, 0.35, 0.35])
    square.imshow(_colours.two_values(steps[np.newaxis, :], steps[:, np.newaxis]), origin="lower",
                  extent=(0, scale, 0, scale), interpolation="bilinear")
    square.set_xlabel(f"false neighbours\n(1 − {pair.false_name})", fontsize="small")
    square.set_ylabel(f"missing neighbours\n(1 − {pair.missing_name})", fontsize="small")
    square.tick_params(labelsize="small")
