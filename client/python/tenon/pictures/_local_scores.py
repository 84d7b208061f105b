"""Pairs of local scores, one per point: of false and of missing neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenon import measure_ids
from tenon.pictures._drawing import bad, one_per_point
from tenon.scores import Scores

# Keys of the two local scores: false neighbours, missing neighbours.
_KEYS = {
    "trustworthiness_continuity": ("local_trustworthiness", "local_continuity"),
    "class_aware_trustworthiness_continuity": ("local_ca_trustworthiness", "local_ca_continuity"),
    "mean_relative_rank_error": ("local_mrre_false", "local_mrre_missing"),
    "steadiness_cohesiveness": ("local_steadiness", "local_cohesiveness"),
}


class LocalPair(NamedTuple):
    """Scores of each point, best 1, and what they are called."""

    false: np.ndarray
    missing: np.ndarray
    false_name: str
    missing_name: str


def local_pair(scores: Any, missing: Any, measure: Any, count: int) -> LocalPair:
    """The two scores of `count` points.

    Args:
      scores: the scores of false neighbours; or, without `missing`, what holds both.
      missing: the scores of missing neighbours, or None.
      measure: which measure to take of several (id, alias or `MEASURE`); None: the first.
      count: the number of points.
    """
    if missing is not None:
        first, second = "trustworthiness", "continuity"
        return LocalPair(one_per_point(scores, count, first), one_per_point(missing, count, second),
                         first, second)
    wanted = list(_KEYS.values())
    if measure is not None:
        name = measure_ids.full_id(measure, "measure")
        if name not in _KEYS:
            raise bad(f"{name} has no local scores of false and missing neighbours; these have: "
                      + ", ".join(_KEYS), "measure")
        wanted = [_KEYS[name]]
    for values in _local_dicts(scores):
        for first, second in wanted:
            if first in values and second in values:
                return LocalPair(one_per_point(values[first], count, first),
                                 one_per_point(values[second], count, second),
                                 *(key.removeprefix("local_").replace("_", " ")
                                   for key in (first, second)))
    raise bad("there are no local scores " + " or ".join(" and ".join(pair) for pair in wanted)
              + ": measure with return_local=True", "scores", "MISSING_FIELD")


def _local_dicts(scores: Any) -> list[Mapping[str, Any]]:
    """The dicts of local arrays in whatever a measurement has returned."""
    if isinstance(scores, Scores):
        scores.raise_for_error()
        scores = scores.local
    scores = getattr(scores, "result", scores)  # of ZADU.iter_measure_many
    if isinstance(scores, tuple) and len(scores) == 2:  # of ZADU.measure: scores and local ones
        scores = scores[1]
    if isinstance(scores, Mapping):
        scores = [scores]
    if not isinstance(scores, Sequence) or isinstance(scores, (str, bytes)):
        raise bad("the scores of missing neighbours are not given, and the first ones are no "
                  f"result of a measurement but {type(scores).__name__}", "scores")
    return [values for values in scores if isinstance(values, Mapping)]
