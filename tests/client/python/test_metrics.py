"""Functions in scikit-learn's manner: beside scikit-learn, SciPy and the definitions."""

import inspect

import numpy as np
import pytest
import scipy.sparse
import sklearn.cluster
import sklearn.manifold
import sklearn.metrics
from scipy import stats
from scipy.spatial.distance import pdist

import tenon
from measure_oracles import distances, ranks, stress, trustworthiness
from tenon import _scorer, metrics
from tenon.v1 import measure_info_pb2
from zadu_peer import zadu

NUMBERS = np.random.default_rng(31)
X = NUMBERS.standard_normal((70, 6))
LD = X[:, :2] + 0.3 * NUMBERS.standard_normal((70, 2))
LABELS = NUMBERS.permutation(np.arange(70) % 3)


@pytest.fixture(scope="module", autouse=True)
def default_client(client):
    tenon.set_default_client(client)
    yield
    tenon.set_default_client(None)


@pytest.mark.parametrize("n_neighbors", [1, 5, 12, 34, np.int64(3), True])
@pytest.mark.parametrize("metric", ["euclidean", "l2", "sqeuclidean", "minkowski"])
def test_trustworthiness_is_scikit_learns(n_neighbors, metric):
    arguments = {"n_neighbors": n_neighbors, "metric": metric}
    assert metrics.trustworthiness(X, LD, **arguments) == pytest.approx(
        sklearn.manifold.trustworthiness(X, LD, **arguments), abs=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "manhattan", "chebyshev",
                                    lambda a, b: np.abs(a - b).max()])
def test_other_metrics_are_scikit_learns(metric):
    assert metrics.trustworthiness(X, LD, metric=metric) == pytest.approx(
        sklearn.manifold.trustworthiness(X, LD, metric=metric), abs=1e-12)
    given = distances(X)
    assert metrics.trustworthiness(given, LD, metric="precomputed") == pytest.approx(
        sklearn.manifold.trustworthiness(X, LD), abs=1e-12)


@pytest.mark.parametrize("data,ld", [
    (X.tolist(), LD.tolist()), (X.astype(np.float32), LD), (scipy.sparse.csr_matrix(X), LD),
    (X.astype(object), LD), (X.astype(str), LD), (X, LD.astype(object)), (X, X[:, :1])])
def test_forms_of_arrays(data, ld):
    assert metrics.trustworthiness(data, ld) == pytest.approx(
        sklearn.manifold.trustworthiness(data, ld), abs=1e-6)


def test_signatures_are_alike():
    mine, theirs = (inspect.signature(function).parameters.values() for function in (
        metrics.trustworthiness, sklearn.manifold.trustworthiness))
    assert [(p.name, p.kind, p.default) for p in mine] == [
        (p.name, p.kind, p.default) for p in theirs]


@pytest.mark.parametrize("data,ld,arguments", [
    (X, LD, {"n_neighbors": 35}), (X, LD, {"n_neighbors": 1000}), (X, LD, {"n_neighbors": 0}),
    (X, LD, {"n_neighbors": -1}), (X, LD, {"n_neighbors": 2.0}), (X, LD, {"n_neighbors": "5"}),
    (X, LD, {"n_neighbors": None}), (X, LD, {"metric": "beauty"}), (X, LD, {"metric": 3}),
    (X, LD, {"metric": "precomputed"}), (X[:10], LD[:10], {}), (X[:0], LD[:0], {}),
    (X[:, 0], LD, {}), (X, LD[:, 0], {}), (X * np.nan, LD, {}), (X, LD * np.inf, {}),
    (X, LD.astype(str).astype(object) + "x", {}), (X.astype(complex), LD, {})])
def test_errors_are_scikit_learns(data, ld, arguments):
    with pytest.raises(Exception) as theirs:
        sklearn.manifold.trustworthiness(data, ld, **arguments)
    with pytest.raises(Exception) as mine:
        metrics.trustworthiness(data, ld, **arguments)
    for kind in (ValueError, TypeError):
        assert isinstance(mine.value, kind) == isinstance(theirs.value, kind), kind


def test_rows_must_match():
    for ld in (LD[:60], np.vstack([LD, LD])):
        with pytest.raises(ValueError, match="rows"):
            metrics.trustworthiness(X, ld)


ZADU = {
    "mrre_false": ("mrre", "mrre_false"), "mrre_missing": ("mrre", "mrre_missing"),
    "local_continuity_meta_criterion": ("lcmc", "lcmc"),
    "neighbor_dissimilarity": ("nd", "neighbor_dissimilarity"),
    "procrustes": ("proc", "procrustes"), "topographic_product": ("topo", "topographic_product"),
    "neighborhood_hit": ("nh", "neighborhood_hit"),
    "class_aware_trustworthiness": ("ca_tnc", "ca_trustworthiness"),
    "class_aware_continuity": ("ca_tnc", "ca_continuity"),
    "distance_consistency": ("dsc", "distance_consistency"),
    "label_trustworthiness": ("l_tnc", "label_trustworthiness"),
    "label_continuity": ("l_tnc", "label_continuity"),
    "kl_divergence": ("kl_div", "kl_divergence"),
    "distance_to_measure": ("dtm", "distance_to_measure"),
    "scale_normalized_stress": ("sn_stress", "scale_normalized_stress"),
    "non_metric_stress": ("nm_stress", "non_metric_stress"), "gap_index": ("gi", "gap_index"),
    "class_angular_distortion": ("cadi", "class_angular_distortion_index"),
}


@pytest.mark.parametrize("name", ZADU)
def test_functions_beside_zadus(name):
    function, (alias, key) = getattr(metrics, name), ZADU[name]
    parameters = inspect.signature(function).parameters
    given = {part: value for part, value in (("X", X), ("X_embedded", LD), ("labels", LABELS))
             if part in parameters}
    params, mine = {}, {}
    if "n_neighbors" in parameters:
        params["k"] = mine["n_neighbors"] = 7
    if "sigma" in parameters:
        params["sigma"] = mine["sigma"] = 0.3
    if "random_state" in parameters and alias == "cadi":
        params["random_seed"] = mine["random_state"] = 4
    scores = zadu.ZADU([{"id": alias, "params": params}], X).measure(LD, LABELS)[0]
    value = function(**given, **mine)
    assert type(value) is float and value == pytest.approx(scores[key], rel=1e-9)


def test_functions_beside_definitions():
    hd, ld = ranks(distances(X)), ranks(distances(LD))
    assert metrics.continuity(X, LD) == pytest.approx(trustworthiness(ld, hd, 5))
    assert metrics.stress(X, LD) == pytest.approx(stress(distances(X), distances(LD)))
    assert metrics.pearson_r(X, LD) == pytest.approx(stats.pearsonr(pdist(X), pdist(LD))[0])
    assert metrics.spearman_rho(X, LD) == pytest.approx(stats.spearmanr(pdist(X), pdist(LD))[0])


def test_validation_beside_scikit_learns():
    for index, theirs in (("silhouette", sklearn.metrics.silhouette_score),
                          ("calinski_harabasz", sklearn.metrics.calinski_harabasz_score),
                          ("davies_bouldin", sklearn.metrics.davies_bouldin_score)):
        assert metrics.internal_validation(LD, LABELS, index=index) == pytest.approx(
            theirs(LD, LABELS))
    found = sklearn.cluster.DBSCAN(eps=0.4, min_samples=4).fit_predict(LD)
    for index, theirs in (("arand", sklearn.metrics.adjusted_rand_score),
                          ("nmi", sklearn.metrics.normalized_mutual_info_score)):
        assert metrics.external_validation(
            LD, LABELS, index=index, clustering="dbscan",
            clustering_args={"eps": 0.4, "min_samples": 4}) == pytest.approx(theirs(LABELS, found))


def test_randomised_functions_repeat_with_a_seed():
    for function in (metrics.steadiness, metrics.cohesiveness):
        values = [function(X, LD, iterations=4, random_state=seed) for seed in (1, 1, 2)]
        assert values[0] == values[1] != values[2]
        assert function(X, LD, iterations=4, n_neighbors=6, random_state=1) != values[0]


@pytest.mark.parametrize("call,error", [
    (lambda: metrics.mrre_false(X, LD, n_neighbors=70), ValueError),
    (lambda: metrics.steadiness(X, LD, n_neighbors=0), ValueError),
    (lambda: metrics.kl_divergence(X, LD, sigma=0), ValueError),
    (lambda: metrics.neighborhood_hit(LD, None), ValueError),
    (lambda: metrics.neighborhood_hit(LD, LABELS[:5]), ValueError),
    (lambda: metrics.pearson_r(X, np.zeros((70, 2))), ValueError),
    (lambda: metrics.internal_validation(LD, LABELS, index="beauty"), ValueError),
    (lambda: metrics.gap_index(X, X), ValueError)])
def test_bad_input(call, error):
    with pytest.raises(error):
        call()


def test_every_measure_has_a_function_and_scorers_know_its_direction(client):
    """The signs of scorers follow what the server tells of its measures."""
    lower = {output.key for info in client.measures() for output in info.outputs
             if output.direction == measure_info_pb2.SCORE_DIRECTION_LOWER}
    open_ = {output.key for info in client.measures() for output in info.outputs
             if output.direction == measure_info_pb2.SCORE_DIRECTION_UNSPECIFIED}
    keys = {name: key for name, (_, key) in ZADU.items()} | {"stress": "stress"}
    assert {name for name, key in keys.items() if key in lower} == _scorer._LOWER
    assert {name for name, key in keys.items() if key in open_} == _scorer._ZERO
    assert _scorer._LOWER_INDICES == {"davies_bouldin"} <= lower
    assert set(metrics.__all__) - {"Scorer", "make_scorer"} == {
        *keys, "trustworthiness", "continuity", "steadiness", "cohesiveness", "pearson_r",
        "spearman_rho", "internal_validation", "external_validation"}
