"""Scorers inside scikit-learn's model selection."""

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, KernelPCA
from sklearn.manifold import TSNE, Isomap, trustworthiness
from sklearn.model_selection import (GridSearchCV, RandomizedSearchCV, ShuffleSplit,
                                     cross_val_score)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tenon
from tenon import metrics
from tenon.metrics import make_scorer

X, Y = (part[:150] for part in load_digits(return_X_y=True))
# Without equal distances, whose order scikit-learn leaves open.
X = X + 0.01 * np.random.default_rng(0).standard_normal(X.shape)


@pytest.fixture(scope="module", autouse=True)
def default_client(client):
    tenon.set_default_client(client)
    yield
    tenon.set_default_client(None)


def test_grid_search_finds_what_scikit_learns_function_finds():
    grid = {"n_components": [1, 2, 5], "kernel": ["linear", "rbf"], "gamma": [1e-3]}
    split = ShuffleSplit(2, test_size=0.5, random_state=0)

    def theirs(estimator, data, labels=None):
        return trustworthiness(data, estimator.transform(data), n_neighbors=7)

    searches = [GridSearchCV(KernelPCA(), grid, cv=split, scoring=scoring).fit(X) for scoring in (
        make_scorer("trustworthiness", n_neighbors=7), theirs)]
    for key in ("mean_test_score", "split0_test_score", "rank_test_score"):
        np.testing.assert_allclose(searches[0].cv_results_[key], searches[1].cv_results_[key])
    assert searches[0].best_params_ == searches[1].best_params_


@pytest.mark.parametrize("estimator,grid", [
    (PCA(), {"n_components": [1, 2, 3]}), (Isomap(), {"n_neighbors": [10, 20]}),
    (make_pipeline(StandardScaler(), PCA()), {"pca__n_components": [1, 2]})])
def test_transformers_and_pipelines(estimator, grid):
    search = GridSearchCV(estimator, grid, cv=2, scoring=make_scorer("stress")).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert (scores < 0).all() and search.best_score_ == scores.max()


def test_more_components_keep_more():
    search = GridSearchCV(PCA(), {"n_components": [1, 2, 8]}, cv=3,
                          scoring=make_scorer(metrics.trustworthiness)).fit(X)
    assert search.best_params_ == {"n_components": 8}


def test_several_scores_at_once_with_labels():
    scoring = {"hit": make_scorer("neighborhood_hit", n_neighbors=3),
               "bouldin": make_scorer("internal_validation", index="davies_bouldin"),
               "topology": make_scorer("topographic_product")}
    search = RandomizedSearchCV(PCA(random_state=0), {"n_components": [2, 6]}, n_iter=2, cv=2,
                                scoring=scoring, refit="hit", random_state=0).fit(X, Y)
    assert search.best_params_ == {"n_components": 6}
    assert (search.cv_results_["mean_test_bouldin"] < 0).all()
    assert (search.cv_results_["mean_test_topology"] <= 0).all()


def test_scores_are_signed():
    fitted = PCA(2).fit(X)
    value = metrics.stress(X, fitted.transform(X))
    assert make_scorer("stress")(fitted, X) == -value
    assert make_scorer("pearson_r")(fitted, X) == metrics.pearson_r(X, fitted.transform(X))


def test_what_can_not_transform_is_fitted_to_the_rows():
    tsne = TSNE(perplexity=5, init="pca", method="exact", random_state=0, max_iter=250)
    first, second = np.arange(40), np.arange(40, 80)
    scores = cross_val_score(tsne, X, cv=[(first, second), (first, first)],
                             scoring=make_scorer("trustworthiness"))
    for score, rows in zip(scores, (second, first), strict=True):
        assert score == pytest.approx(trustworthiness(X[rows], tsne.fit_transform(X[rows])))


def test_what_is_no_projection():
    class Nothing(BaseEstimator):
        pass

    with pytest.raises(TypeError, match="transform"):
        make_scorer("stress")(Nothing(), X)
    with pytest.raises(ValueError, match="labels"):
        make_scorer("distance_consistency")(PCA(2).fit(X), X)


@pytest.mark.parametrize("metric,parameters,error", [
    ("beauty", {}, ValueError), ("make_scorer", {}, ValueError), (max, {}, ValueError),
    (trustworthiness, {}, ValueError), ("stress", {"n_neighbors": 3}, TypeError)])
def test_bad_scorers(metric, parameters, error):
    with pytest.raises(error):
        make_scorer(metric, **parameters)


def test_scorers_travel_to_other_processes():
    scorer = make_scorer("trustworthiness", n_neighbors=3)
    again = pickle.loads(pickle.dumps(scorer))
    fitted = PCA(2).fit(X)
    assert again(fitted, X) == scorer(fitted, X)
    assert eval(repr(scorer), {"make_scorer": make_scorer}).parameters == scorer.parameters
