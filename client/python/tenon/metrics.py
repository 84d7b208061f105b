"""Quality of projections as functions of arrays, in the manner of scikit-learn.

    from tenon.metrics import trustworthiness, make_scorer
    trustworthiness(X, X_embedded, n_neighbors=5)
    GridSearchCV(KernelPCA(), grid, scoring=make_scorer("trustworthiness", n_neighbors=10))

`X` is the data set and `X_embedded` the projection, of as many rows; `labels` are one per row. Each
function returns a float and asks the default client; `tenon.measures` and ``Client.measures()``
tell where the definitions come from.

Raises, all of them:
  ValueError: as a `tenon.InvalidRequest`: shapes, values that are not finite, parameters out of
    range, or a score that has no value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon._scorer import Scorer, make_scorer
from tenon.client import default_client
from tenon.errors import InvalidRequest

__all__ = ["Scorer", "class_angular_distortion", "class_aware_continuity",
           "class_aware_trustworthiness", "cohesiveness", "continuity", "distance_consistency",
           "distance_to_measure", "external_validation", "gap_index", "internal_validation",
           "kl_divergence", "label_continuity", "label_trustworthiness",
           "local_continuity_meta_criterion", "make_scorer", "mrre_false", "mrre_missing",
           "neighbor_dissimilarity", "neighborhood_hit", "non_metric_stress", "pearson_r",
           "procrustes", "scale_normalized_stress", "spearman_rho", "steadiness", "stress",
           "topographic_product", "trustworthiness"]

# Metrics whose order of distances is the Euclidean one.
_EUCLIDEAN = {"euclidean", "l2", "sqeuclidean", "minkowski"}


class InvalidParameter(InvalidRequest, TypeError):
    """A parameter of the wrong type or out of range; scikit-learn's is of both classes, too."""


def trustworthiness(X: Any, X_embedded: Any, *, n_neighbors: int = 5,
                    metric: str | Callable[..., float] = "euclidean") -> float:
    """``sklearn.manifold.trustworthiness``: how far false neighbours are, 0 to 1, best 1.

    Equal distances are ordered by row, where scikit-learn leaves the order open. `metric` is of the
    distances in `X`; for others than the Euclidean one scikit-learn does the work, here.
    """
    if not isinstance(metric, str) or metric not in _EUCLIDEAN:
        return _by_scikit_learn(X, X_embedded, n_neighbors, metric)
    return _score("tnc", "trustworthiness", X, X_embedded, k=_half(n_neighbors, X))


def continuity(X: Any, X_embedded: Any, *, n_neighbors: int = 5) -> float:
    """How far missing neighbours are: trustworthiness with the spaces exchanged, best 1."""
    return _score("tnc", "continuity", X, X_embedded, k=_half(n_neighbors, X))


def mrre_false(X: Any, X_embedded: Any, *, n_neighbors: int = 5) -> float:
    """One minus the mean relative rank error of the neighbours in the projection, best 1."""
    return _score("mrre", "mrre_false", X, X_embedded, k=_count(n_neighbors))


def mrre_missing(X: Any, X_embedded: Any, *, n_neighbors: int = 5) -> float:
    """One minus the mean relative rank error of the neighbours in the data set, best 1."""
    return _score("mrre", "mrre_missing", X, X_embedded, k=_count(n_neighbors))


def local_continuity_meta_criterion(X: Any, X_embedded: Any, *, n_neighbors: int = 5) -> float:
    """Share of common neighbours above chance, best 1 - k / (n - 1)."""
    return _score("lcmc", "lcmc", X, X_embedded, k=_count(n_neighbors))


def neighborhood_hit(X_embedded: Any, labels: Any, *, n_neighbors: int = 5) -> float:
    """Share of projected neighbours with the same label, best 1."""
    return _score("nh", "neighborhood_hit", None, X_embedded, labels, k=_count(n_neighbors))


def neighbor_dissimilarity(X: Any, X_embedded: Any, *, n_neighbors: int = 5) -> float:
    """Difference of the shared-neighbour graphs, best 0; grows with n."""
    return _score("nd", "neighbor_dissimilarity", X, X_embedded, k=_count(n_neighbors))


def class_aware_trustworthiness(X: Any, X_embedded: Any, labels: Any, *,
                                n_neighbors: int = 5) -> float:
    """Trustworthiness over false neighbours of other classes, best 1."""
    return _score("ca_tnc", "ca_trustworthiness", X, X_embedded, labels, k=_half(n_neighbors, X))


def class_aware_continuity(X: Any, X_embedded: Any, labels: Any, *, n_neighbors: int = 5) -> float:
    """Continuity over missing neighbours of the own class, best 1."""
    return _score("ca_tnc", "ca_continuity", X, X_embedded, labels, k=_half(n_neighbors, X))


def procrustes(X: Any, X_embedded: Any, *, n_neighbors: int = 5, pairing: str = "rank") -> float:
    """Residual of neighbourhoods after the best rotation, best 0. See `tenon.measures.procrustes`.

    `pairing`: "rank" pairs the r-th neighbours of both spaces, "identity" each row with its image.
    """
    return _score("proc", "procrustes", X, X_embedded, k=_count(n_neighbors), pairing=pairing)


def steadiness(X: Any, X_embedded: Any, *, n_neighbors: int | None = None, iterations: int = 150,
               random_state: Any = None) -> float:
    """How far clusters of the projection are clusters of the data set, best 1. Randomised."""
    return _score("snc", "steadiness", X, X_embedded, k=_optional(n_neighbors),
                  iteration=iterations, random_state=random_state)


def cohesiveness(X: Any, X_embedded: Any, *, n_neighbors: int | None = None, iterations: int = 150,
                 random_state: Any = None) -> float:
    """How far clusters of the data set stay together, best 1. Randomised."""
    return _score("snc", "cohesiveness", X, X_embedded, k=_optional(n_neighbors),
                  iteration=iterations, random_state=random_state)


def distance_consistency(X_embedded: Any, labels: Any) -> float:
    """Share of rows nearest to the centroid of their class, best 1."""
    return _score("dsc", "distance_consistency", None, X_embedded, labels)


def internal_validation(X_embedded: Any, labels: Any, *, index: str = "silhouette") -> float:
    """scikit-learn's "silhouette", "calinski_harabasz" or "davies_bouldin" of the labels."""
    return _score("ivm", None, None, X_embedded, labels, measure=index)


def external_validation(X_embedded: Any, labels: Any, *, index: str = "arand",
                        clustering: str = "kmeans",
                        clustering_args: dict[str, Any] | None = None) -> float:
    """Agreement of a clustering with the labels, best 1.

    `index` is "arand", "ami", "nmi" or "vmeasure"; `clustering` is "kmeans" (with random choices of
    its own) or "dbscan", `clustering_args` are those of scikit-learn.
    """
    return _score("c_evm", None, None, X_embedded, labels, measure=index, clustering=clustering,
                  clustering_args=clustering_args)


def label_trustworthiness(X: Any, X_embedded: Any, labels: Any, *, cvm: str = "dsc",
                          random_state: Any = None) -> float:
    """Separation of pairs of classes that is lost, best 1; `cvm` is "dsc" or "ch_btw"."""
    return _score("l_tnc", "label_trustworthiness", X, X_embedded, labels,
                  **_pairs(cvm, random_state))


def label_continuity(X: Any, X_embedded: Any, labels: Any, *, cvm: str = "dsc",
                     random_state: Any = None) -> float:
    """Separation of pairs of classes that is won, best 1; `cvm` is "dsc" or "ch_btw"."""
    return _score("l_tnc", "label_continuity", X, X_embedded, labels, **_pairs(cvm, random_state))


def class_angular_distortion(X: Any, X_embedded: Any, labels: Any, *, n_triplets: int = 0,
                             random_state: Any = None) -> float:
    """Change of angles between classes over random triplets (0: 10 n of them), best 0."""
    return _score("cadi", "class_angular_distortion_index", X, X_embedded, labels,
                  n_triplets=n_triplets, random_seed=random_state)


def stress(X: Any, X_embedded: Any) -> float:
    """Relative error of all distances, best 0. The scale of the projection counts."""
    return _score("stress", "stress", X, X_embedded)


def scale_normalized_stress(X: Any, X_embedded: Any) -> float:
    """Stress after the best scaling of the projection, best 0."""
    return _score("sn_stress", "scale_normalized_stress", X, X_embedded)


def non_metric_stress(X: Any, X_embedded: Any) -> float:
    """Stress after the best monotone transformation of the distances, best 0."""
    return _score("nm_stress", "non_metric_stress", X, X_embedded)


def kl_divergence(X: Any, X_embedded: Any, *, sigma: float = 0.1) -> float:
    """Kullback-Leibler divergence of density estimates, best 0."""
    return _score("kl_div", "kl_divergence", X, X_embedded, sigma=sigma)


def distance_to_measure(X: Any, X_embedded: Any, *, sigma: float = 0.1) -> float:
    """Absolute difference of density estimates, best 0."""
    return _score("dtm", "distance_to_measure", X, X_embedded, sigma=sigma)


def topographic_product(X: Any, X_embedded: Any, *, n_neighbors: int = 5) -> float:
    """Preservation of the order of neighbours, best 0, of either sign."""
    return _score("topo", "topographic_product", X, X_embedded, k=_count(n_neighbors))


def pearson_r(X: Any, X_embedded: Any) -> float:
    """Pearson correlation of all distances, best 1."""
    return _score("pr", "pearson_r", X, X_embedded)


def spearman_rho(X: Any, X_embedded: Any) -> float:
    """Spearman rank correlation of all distances, best 1."""
    return _score("srho", "spearman_rho", X, X_embedded)


def gap_index(X: Any, X_embedded: Any, *,
              metric: str | Callable[[Any, Any], float] = "euclidean") -> float:
    """Change of the areas of the projection's triangles, best 0; needs two columns.

    `metric` of `X` is a name of SciPy's, a function of two rows, or "precomputed".
    """
    return _score("gi", "gap_index", X, X_embedded, metric=metric)


def _score(measure: str, key: str | None, X: Any, X_embedded: Any, labels: Any = None, /,
           **parameters: Any) -> float:
    """One score of one measure; `key` None: the only one. X None: the projection alone counts."""
    projection = _points(X_embedded, "X_embedded")
    data = projection if X is None else _points(X, "X")
    if len(data) != len(projection):
        raise InvalidRequest(f"X has {len(data)} rows, X_embedded {len(projection)}",
                             reason="SHAPE_MISMATCH", field="X_embedded")
    item, = default_client().measure(data, [(measure, parameters)], [projection], labels=labels,
                                     rng="numpy", on_error="raise")
    return item[key] if key is not None else next(iter(item.values[0].values()))


def _points(values: Any, name: str) -> np.ndarray:
    """A finite matrix. Sparse ones are filled and texts read, as scikit-learn does."""
    array = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
    if array.dtype.kind in "OUS":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise InvalidRequest(f"{name} has values that are no numbers",
                                 reason="UNSUPPORTED_DTYPE", field=name) from None
    if array.dtype.kind not in "biuf":
        raise InvalidRequest(f"{name} is of type {array.dtype}; needed are real numbers",
                             reason="UNSUPPORTED_DTYPE", field=name)
    if array.ndim != 2:
        raise InvalidRequest(f"{name} is a matrix; this has the shape {array.shape}",
                             reason="SHAPE_MISMATCH", field=name)
    if not np.isfinite(array).all():
        raise InvalidRequest(f"{name} has values that are not finite", reason="NOT_FINITE",
                             field=name)
    return array


def _count(n_neighbors: Any) -> int:
    if not isinstance(n_neighbors, (int, np.integer)) or n_neighbors < 1:
        raise InvalidParameter(f"n_neighbors is {n_neighbors!r}; needed is an integer above 0",
                               reason="BAD_PARAMETER", field="n_neighbors")
    return int(n_neighbors)


def _optional(n_neighbors: Any) -> int | None:
    return None if n_neighbors is None else _count(n_neighbors)


def _half(n_neighbors: Any, X: Any) -> int:
    count = _count(n_neighbors)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if count >= rows / 2:
        raise InvalidRequest(f"n_neighbors is {count}; needed is less than half of the {rows} rows",
                             reason="K_OUT_OF_RANGE", field="n_neighbors")
    return count


def _pairs(cvm: str, random_state: Any) -> dict[str, Any]:
    return {"cvm": cvm} if random_state is None else {"cvm": cvm, "random_state": random_state}


def _by_scikit_learn(X: Any, X_embedded: Any, n_neighbors: int,
                     metric: str | Callable[..., float]) -> float:
    try:
        from sklearn import manifold
    except ImportError:
        raise ImportError(f"the metric {metric!r} needs scikit-learn: pip install scikit-learn"
                          ) from None
    return float(manifold.trustworthiness(X, X_embedded, n_neighbors=n_neighbors, metric=metric))
