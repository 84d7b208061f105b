"""Every measure with several parameters, on data with and without ties: zadu's scores."""

import importlib
import warnings

import numpy as np
import pytest

import tenon
from zadu_peer import close, zadu

NUMBERS = np.random.default_rng(23)
HD = NUMBERS.standard_normal((90, 7))
LD = HD[:, :2] + 0.3 * NUMBERS.standard_normal((90, 2))
GRID = NUMBERS.integers(0, 4, (90, 3)).astype(float)
TWICE = np.repeat(HD[:45], 2, axis=0)
DATA = {
    "gaussian": (HD, LD),
    "float32": (HD.astype(np.float32), LD.astype(np.float32)),
    "integers": (NUMBERS.integers(0, 50, (90, 5)), NUMBERS.integers(0, 50, (90, 2))),
    "ties": (GRID, GRID[:, :2] + 0.5 * NUMBERS.integers(0, 2, (90, 2))),
    "duplicates": (TWICE, np.repeat(LD[:45], 2, axis=0)),
    "one column": (HD, LD[:, :1]),
    "wide": (HD[:, :2], HD),
    "far": (1e8 + HD, 1e-8 * LD),
}
CLASSES = NUMBERS.permutation(np.arange(90) % 4)
LABELS = {"numbers": CLASSES, "texts": np.array(["d", "a", "c", "b"])[CLASSES],
          "reals": np.array([0.5, -2.0, 1e9, 3.0])[CLASSES]}

PLAIN = [("tnc", {}), ("tnc", {"k": 1}), ("tnc", {"k": 44}), ("mrre", {"k": 5}),
         ("mrre", {"k": 89}), ("lcmc", {"k": 3}), ("lcmc", {}), ("nd", {"k": 6}), ("dtm", {}),
         ("dtm", {"sigma": 1}),
         ("kl_div", {"sigma": 0.02}), ("pr", {}), ("srho", {}), ("stress", {}), ("sn_stress", {}),
         ("nm_stress", {})]
DISTINCT = [("topo", {}), ("topo", {"k": 3}), ("proc", {}), ("proc", {"k": 2}),
            ("proc", {"k": 89})]
LABELLED = [("nh", {}), ("nh", {"k": 1}), ("ca_tnc", {}), ("ca_tnc", {"k": 7}), ("dsc", {}),
            ("l_tnc", {}), ("l_tnc", {"cvm": "DSC"}), ("ivm", {}),
            ("ivm", {"measure": "Silhouette"}), ("ivm", {"measure": "calinski_harabasz"}),
            ("ivm", {"measure": "davies_bouldin"}),
            ("cadi", {"random_seed": 5}), ("cadi", {"n_triplets": 77, "random_seed": 8}),
            ("c_evm", {"clustering": "dbscan", "measure": "ami"}),
            ("c_evm", {"clustering": "DBSCAN", "measure": "nmi",
                       "clustering_args": {"eps": 0.9, "min_samples": 4}}),
            ("c_evm", {"clustering": "dbscan", "measure": "vmeasure",
                       "clustering_args": {"eps": 0.4, "metric": "manhattan"}}),
            ("c_evm", {"clustering": "dbscan",
                       "clustering_args": {"metric": "minkowski", "p": 3, "n_jobs": 1}})]


def both(specs, hd, ld, label=None, **options):
    specs = [{"id": name, "params": params} for name, params in specs]
    results = []
    for package in (tenon, zadu):
        np.random.seed(12345)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(package.ZADU(specs, hd, **options).measure(ld, label))
    return results


@pytest.fixture(scope="module", autouse=True)
def default_client(client):
    tenon.set_default_client(client)
    yield
    tenon.set_default_client(None)


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("data", DATA)
def test_measures_without_labels(data, local):
    # Data far from zero leaves few digits to distances.
    close(*both(PLAIN, *DATA[data], return_local=local),
          rel=1e-5 if data in ("far", "float32") else 1e-11,
          abs_=1e-6 if data in ("far", "float32") else 1e-11)


@pytest.mark.parametrize("data", ["gaussian", "one column", "wide"])
@pytest.mark.parametrize("local", [False, True])
def test_measures_that_need_distinct_points(data, local):
    close(*both(DISTINCT, *DATA[data], return_local=local), rel=1e-9)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("data", ["gaussian", "ties", "duplicates", "integers", "wide"])
def test_measures_with_labels(data, labels):
    for local in (False, True):
        close(*both(LABELLED, *DATA[data], LABELS[labels], return_local=local), rel=1e-9, abs_=1e-9)


@pytest.mark.parametrize("measure", ["arand", "ami", "nmi", "vmeasure"])
@pytest.mark.parametrize("arguments", [
    None, {}, {"n_clusters": 4, "n_init": 3, "max_iter": 50, "tol": 1e-5, "random_state": 1},
    {"init": "random", "n_init": 20, "random_state": 3, "algorithm": "lloyd", "copy_x": True}])
def test_clusters_that_every_k_means_finds(measure, arguments):
    """The random choices are not scikit-learn's; where there is one answer, both find it."""
    centres = np.array([[0, 0], [9, 0], [0, 9], [9, 9]])
    ld = centres[np.arange(90) % 4] + 0.2 * NUMBERS.standard_normal((90, 2))
    params = {"measure": measure, "clustering": "kmeans", "clustering_args": arguments}
    close(*both([("c_evm", params)], HD, ld, CLASSES), rel=1e-9, abs_=1e-9)


@pytest.mark.parametrize("params", [
    {"metric": "euclidean"}, {"metric": "cityblock"}, {"metric": "minkowski"},
    {"metric": "canberra"}, {"metric": "chebyshev"}, {"metric": "hamming"},
    {"metric": lambda a, b: np.abs(a - b).sum()}])
def test_gap_index(params):
    close(*both([("gi", params)], np.round(np.abs(HD), 1), LD), rel=1e-9)


@pytest.mark.parametrize("metric", ["cosine", "correlation", "sqeuclidean"])
def test_gap_index_of_what_is_no_metric(metric):
    for package in (tenon, zadu):
        with pytest.raises(ValueError, match="triangle inequality"):
            package.ZADU([{"id": "gi", "params": {"metric": metric}}], HD).measure(LD)
        with pytest.raises(ValueError, match="triangle inequality"):
            importlib.import_module(package.__name__ + ".measures.gap_index").compute(
                HD, LD, metric)


def test_gap_index_of_a_matrix_of_distances():
    distances = np.linalg.norm(HD[:, None] - HD[None], axis=2)
    close(*both([("gi", {"metric": "precomputed"})], distances, LD), rel=1e-9)


@pytest.mark.parametrize("params", [
    {}, {"walk_num_ratio": 0.1, "alpha": 0.3}, {"k": 7}, {"n_jobs": 2}])
def test_steadiness_and_cohesiveness(params):
    """One walk for each seed. HDBSCAN's choice among equal distances changes from one of its
    versions to the next, so that a few walks may be clustered in another way."""
    equal = 0
    for seed in range(12):
        spec = ("snc", {"random_state": seed, "iteration": 1, **params})
        mine, theirs = both([spec], HD, LD, return_local=True)
        try:
            close(mine, theirs, rel=1e-9, abs_=1e-9)
            equal += 1
        except AssertionError:
            for key, value in theirs[0][0].items():
                assert abs(mine[0][0][key] - value) < 0.5
    assert equal >= 10


def test_steadiness_and_cohesiveness_by_k_means():
    """Random in itself: the mean over many walks is the same up to the noise."""
    spec = ("snc", {"random_state": 3, "iteration": 60, "clustering_strategy": "3-means"})
    mine, theirs = both([spec], HD, LD)
    for key in ("steadiness", "cohesiveness"):
        assert mine[0][key] == pytest.approx(theirs[0][key], abs=0.05)


def test_numpys_global_seed_counts():
    """It is the only seed of these in zadu. A short walk leaves HDBSCAN no choice."""
    specs = [("snc", {"iteration": 1, "walk_num_ratio": 0.05, "k": 4}),
             ("l_tnc", {"cvm": "ch_btw"})]
    for spec in specs:
        close(*both([spec], HD, LD, CLASSES), rel=1e-9)


def test_generators_of_numpy_are_taken():
    specs = [{"id": "cadi", "params": {"random_seed": np.random.default_rng(5)}},
             {"id": "snc", "params": {"random_state": np.random.default_rng(6), "iteration": 3}}]
    runs = [tenon.ZADU(specs, HD) for _ in range(2)]
    first, again = [run.measure(LD, CLASSES) for run in runs]
    assert first == again  # each runner has copies
    assert runs[0].measure(LD, CLASSES) != first  # which go on


def test_tenons_own_random_numbers_can_be_asked_for():
    specs = [{"id": "cadi", "params": {"random_seed": 5}}]
    own = [tenon.ZADU(specs, HD, execution=tenon.ExecutionConfig(rng=rng)).measure(LD, CLASSES)
           for rng in ("counter", "numpy")]
    assert own[0] != own[1]


def test_geodesic_distances():
    sphere = NUMBERS.uniform(-1.5, 1.5, (90, 2))
    close(*both([("tnc", {}), ("stress", {}), ("srho", {}), ("dtm", {}), ("lcmc", {})], sphere, LD,
                geodesic=True), rel=1e-9)


def test_pairs_sorted_in_files():
    specs = [{"id": "srho"}, {"id": "nm_stress"}]
    results = [package.ZADU(specs, HD, execution=package.ExecutionConfig(
        pair_order_strategy="external", temporary_budget="8MiB")) for package in (tenon, zadu)]
    close(*[runner.measure(LD) for runner in results], rel=1e-9)
    assert {runner.last_run_info["pair_strategy"] for runner in results} == {"external"}


def test_no_measures():
    close(*both([], HD, LD))
    close(*both([], HD, LD, return_local=True))
