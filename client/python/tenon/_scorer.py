"""Scorers for scikit-learn's model selection."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from tenon.errors import InvalidRequest

# Functions of tenon.metrics whose smaller values are better; of those in _ZERO the smaller
# magnitudes are.
_LOWER = {"class_angular_distortion", "distance_to_measure", "gap_index", "kl_divergence",
          "neighbor_dissimilarity", "non_metric_stress", "procrustes", "scale_normalized_stress",
          "stress"}
_ZERO = {"topographic_product"}
_LOWER_INDICES = {"davies_bouldin"}


class Scorer:
    """What ``scoring=`` of GridSearchCV and its relatives takes: larger is better. Made by
    `make_scorer`.

    The estimator's ``transform`` gives the projection of the rows that are scored. One without it,
    such as t-SNE, is cloned and fitted to these rows anew. Measures that need labels take ``y``.
    """

    def __init__(self, function: str, parameters: dict[str, Any]) -> None:
        self.function, self.parameters = function, parameters

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        function = _function(self.function)
        given = {"X": X, "X_embedded": _project(estimator, X), "labels": y}
        if y is None and "labels" in inspect.signature(function).parameters:
            raise InvalidRequest(f"{self.function} needs labels: fit with y",
                                 reason="LABELS_REQUIRED", field="y")
        taken = {name: value for name, value in given.items()
                 if name in inspect.signature(function).parameters}
        value = function(**taken, **self.parameters)
        if self.function in _ZERO:
            return -abs(value)
        return -value if self._lower_is_better() else value

    def _lower_is_better(self) -> bool:
        return self.function in _LOWER or self.parameters.get("index") in _LOWER_INDICES

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.parameters.items())
        return f"make_scorer({self.function!r}{given})"


def make_scorer(metric: str | Callable[..., float], **parameters: Any) -> Scorer:
    """A scorer for model selection of transformers.

    Args:
      metric: a function of `tenon.metrics`, or its name.
      parameters: go to the function, for example ``n_neighbors=10``.

    Raises:
      InvalidRequest: a ValueError; there is no such function.
      TypeError: the function has no such parameter.
    """
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    function = _function(name)
    if not isinstance(metric, str) and metric is not function:
        raise InvalidRequest(f"{metric!r} is no function of tenon.metrics", reason="BAD_PARAMETER",
                             field="metric")
    inspect.signature(function).bind_partial(**parameters)
    return Scorer(name, parameters)


def _function(name: str) -> Callable[..., float]:
    metrics = importlib.import_module("tenon.metrics")
    if name not in metrics.__all__ or name in ("Scorer", "make_scorer"):
        raise InvalidRequest(f"'{name}' is no function of tenon.metrics", reason="BAD_PARAMETER",
                             field="metric")
    return getattr(metrics, name)


def _project(estimator: Any, X: Any) -> Any:
    if hasattr(estimator, "transform"):
        return estimator.transform(X)
    if hasattr(estimator, "fit_transform"):
        from sklearn.base import clone
        return clone(estimator).fit_transform(X)
    raise TypeError(f"{type(estimator).__name__} has neither transform nor fit_transform")
