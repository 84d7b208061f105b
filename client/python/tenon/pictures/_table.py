"""Many projections by many measures, as a heat map with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.pictures import _colours, _drawing
from tenon.scores import Scores

# Keys whose smaller values are better, and those whose best value is 0; of all others larger ones
# are. As Client.measures() tells.
_LOWER = frozenset({"class_angular_distortion_index", "davies_bouldin", "distance_to_measure",
                    "gap_index", "kl_divergence", "neighbor_dissimilarity", "non_metric_stress",
                    "procrustes", "scale_normalized_stress", "stress"})
_ZERO = frozenset({"topographic_product"})
_MARKS = {"higher": "↑", "lower": "↓", "zero": "→ 0"}
_MOST_NUMBERS = 600

_Column = tuple[int, str]  # place of the measure, key


def score_table(runs: Any, keys: Sequence[str] | None = None, ax: Any = None, *,
                names: Sequence[str] | None = None, better: Mapping[str, str] | None = None,
                number_format: str = ".3g", colour_bar: bool = True) -> Any:
    """Projections in rows, scores in columns; colours go from the worst to the best of a column.

    Args:
      runs: a `MeasureStream` or other iterable of `Scores`, a list of results of `ZADU`, or of
        dicts (score by key); a dict of any of these by name; or a matrix, projections x `keys`. NaN
        and infinity, and what could not be scored, are grey.
      keys: the columns to show, in this order; default: all.
      ax: where to draw.
      names: of the projections; default: their own, else their numbers.
      better: "higher", "lower" or "zero" by key, for keys that are not the package's own.
      number_format: of the numbers, ``""``: no numbers. Above 600 cells there are none.
      colour_bar: whether the scale is drawn beside the axes.

    Returns:
      The axes: an ``AxesImage`` whose array holds 0 (worst) to 1 (best) within each column, masked
      where there is no score. A column of equal scores is 1.
    """
    own_names, columns, values = _matrix(runs, keys)
    names = own_names if names is None else list(names)
    if len(names) != len(values):
        raise _drawing.bad(f"there are {len(names)} names of {len(values)} projections", "names",
                           "SHAPE_MISMATCH")
    directions = [_direction(key, better or {}) for _, key in columns]
    shares = _shares(values, directions)
    ax = _drawing.axes(ax, (2.5 + 0.9 * len(columns), 2.2 + 0.32 * len(values)))
    colours = _drawing.matplotlib("pyplot").get_cmap(_colours.SEQUENTIAL).copy()
    colours.set_bad("0.85")
    image = ax.imshow(shares, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    labels = [f"{label.replace('_', ' ')} {_MARKS[direction]}"
              for label, direction in zip(_labels(columns), directions)]
    ax.set_xticks(range(len(columns)), labels, rotation=35, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(values)), names)
    if number_format and values.size <= _MOST_NUMBERS:
        _write_numbers(ax, values, shares, number_format)
    if colour_bar:
        bar = ax.figure.colorbar(image, ax=ax, ticks=[0, 1])
        bar.set_label("within each\nmeasure (no unit)", fontsize="small")
        bar.ax.set_yticklabels(["worst", "best"], fontsize="small")
    return ax


def _matrix(runs: Any, keys: Sequence[str] | None) -> tuple[list[str], list[_Column], np.ndarray]:
    """Names of rows, columns and values."""
    if isinstance(runs, np.ndarray):
        return _plain(runs, keys)
    rows = list(_rows(runs))
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    if keys is not None:
        known = {key for _, key in columns}
        for key in keys:
            if key not in known:
                raise _drawing.bad(f"no projection has a score '{key}'; there are "
                                   + ", ".join(sorted(known)), "keys")
        columns = [column for key in keys for column in columns if column[1] == key]
    else:
        columns.sort(key=lambda column: column[0])  # stable: measures in their own order
    if not columns:
        raise _drawing.bad("there are no scores", "runs", "MISSING_FIELD")
    values = _drawing.numbers([[row.get(column, np.nan) for column in columns] for _, row in rows],
                              "runs", finite=False)
    return [name for name, _ in rows], columns, values


def _plain(matrix: np.ndarray, keys: Sequence[str] | None) -> tuple[list[str], list[_Column],
                                                                    np.ndarray]:
    values = _drawing.numbers(matrix, "runs", finite=False)
    if keys is None:
        raise _drawing.bad("a matrix needs keys: the names of its columns", "keys", "MISSING_FIELD")
    if values.ndim != 2 or values.shape[1] != len(keys) or not values.size:
        raise _drawing.bad(f"runs has the shape {values.shape}, needed is (projections, {len(keys)}"
                           "), one column per key", "runs", "SHAPE_MISMATCH")
    return ([str(number) for number in range(len(values))],
            [(number, str(key)) for number, key in enumerate(keys)], values)


def _rows(runs: Any) -> Iterable[tuple[str, dict[_Column, float]]]:
    if isinstance(runs, Scores):
        runs = [runs]
    if isinstance(runs, Mapping):
        items: Iterable[tuple[Any, Any]] = runs.items()
    elif isinstance(runs, Iterable) and not isinstance(runs, (str, bytes)):
        items = ((getattr(run, "name", "") or getattr(run, "index", number), run)
                 for number, run in enumerate(runs))
    else:
        raise _drawing.bad(f"runs are results of projections, not {type(runs).__name__}", "runs")
    for name, run in items:
        yield str(name), _scores(run)


def _scores(run: Any) -> dict[_Column, float]:
    """The scores of one projection by place of the measure and key."""
    if isinstance(run, Scores):
        run = run.values
    run = getattr(run, "result", run)  # of ZADU.iter_measure_many
    if isinstance(run, tuple) and len(run) == 2:  # of ZADU.measure: scores and local ones
        run = run[0]
    parts = [run] if isinstance(run, Mapping) else run
    if not isinstance(parts, Sequence) or not all(isinstance(part, Mapping) for part in parts):
        raise _drawing.bad("runs are results of projections or dicts of scores, not "
                           + type(run).__name__, "runs")
    return {(place, str(key)): value for place, part in enumerate(parts)
            for key, value in part.items()}


def _labels(columns: Sequence[_Column]) -> list[str]:
    """Keys; those of several measures with a number."""
    keys = [key for _, key in columns]
    seen: dict[str, int] = {}
    labels = []
    for key in keys:
        seen[key] = seen.get(key, 0) + 1
        labels.append(key if keys.count(key) == 1 else f"{key} ({seen[key]})")
    return labels


def _direction(key: str, better: Mapping[str, str]) -> str:
    direction = better.get(key)
    if direction is None:
        return "lower" if key in _LOWER else "zero" if key in _ZERO else "higher"
    if direction not in _MARKS:
        raise _drawing.bad(f"'{direction}' is not one of " + ", ".join(_MARKS), f"better.{key}")
    return direction


def _shares(values: np.ndarray, directions: Sequence[str]) -> np.ma.MaskedArray:
    """0 for the worst, 1 for the best of each column."""
    shares = np.full(values.shape, np.nan)
    for number, direction in enumerate(directions):
        rows = np.isfinite(values[:, number])
        if rows.any():
            column = values[rows, number]
            good = (column if direction == "higher" else -column if direction == "lower"
                    else -abs(column))
            low, high = good.min(), good.max()
            # Halves: the difference of two finite numbers may be infinite.
            shares[rows, number] = ((good / 2 - low / 2) / (high / 2 - low / 2) if high > low
                                    else 1.0)
    return np.ma.masked_invalid(shares)


def _write_numbers(ax: Any, values: np.ndarray, shares: np.ma.MaskedArray,
                   number_format: str) -> None:
    for (row, column), value in np.ndenumerate(values):
        share = shares[row, column]
        missing = np.ma.is_masked(share)
        text = "–" if np.isnan(value) else format(value, number_format)
        ax.text(column, row, text, ha="center", va="center", fontsize="small",
                color="black" if missing or share > 0.5 else "white",
                fontweight="bold" if not missing and share == 1 else "normal")
