"""One measure of one projection, on the default server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenon.client import default_client
from tenon.errors import Unsupported
from tenon.zadu import _checks

Scores = dict[str, float]
MaybeLocal = Scores | tuple[Scores, dict[str, np.ndarray]]


def score(name: str, orig: Any, emb: Any, *, label: Any = None,
          params: Mapping[str, Any] | None = None, return_local: bool = False,
          unused: Mapping[str, Any] | None = None) -> Any:
    """The scores by key; with `return_local` a pair of them and of the scores of every row.

    Args:
      orig: the data set; None for measures of the projection alone.
      unused: arguments that stand for intermediate results; the server builds its own.

    Raises:
      ValueError: shapes, values or parameters are wrong, or the score has no value.
      TypeError: values of the wrong type.
      Unsupported: an intermediate result was given.
    """
    given = [key for key, value in (unused or {}).items() if value is not None]
    if given:
        raise Unsupported("the server builds all intermediate results from the points; leave out "
                          + ", ".join(given), reason="BAD_PARAMETER", field=given[0])
    projection = _checks.matrix(emb, "emb")
    data = projection if orig is None else _checks.matrix(orig, "orig", len(projection))
    labels = None if label is None else _checks.labels(label, len(projection))
    item, = list(default_client().measure(data, [(name, dict(params or {}))], [projection],
                                          labels=labels, rng="numpy", return_local=return_local))
    item.raise_for_error()
    return (item.values[0], item.local[0]) if return_local else item.values[0]


def float_matrix(values: Any, name: str) -> np.ndarray:
    """A checked matrix in float64."""
    return _checks.matrix(values, name).astype(np.float64)
