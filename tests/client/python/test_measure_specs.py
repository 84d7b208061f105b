"""Every measure and parameter of the server can be asked for, in the words of zadu too."""

import numpy as np
import pytest

import tenon
from tenon import _measure_specs, _random
from tenon.v1 import measure_info_pb2

NUMBERS = np.random.default_rng(2)
HD = NUMBERS.standard_normal((60, 5))
LD = HD[:, :2] + 0.1 * NUMBERS.standard_normal((60, 2))
LABELS = np.arange(60) % 3


def wire(name, rng="counter", matrix=None, **parameters):
    message, = _measure_specs.to_wire([(name, parameters)], rng, matrix)
    return getattr(message, name)


def test_the_names_are_the_servers(client):
    infos = client.measures()
    assert {info.alias: info.id for info in infos} == {
        measure.name.lower(): measure.value for measure in tenon.MEASURE}
    for info in infos:
        names = {parameter.name.split(".")[0] for parameter in info.parameters}
        assert names <= _measure_specs.parameter_names(info.id)


def test_every_choice_of_the_server_has_a_short_name(client):
    """The names that ListMeasures gives are the ones to pass."""
    seen = 0
    for info in client.measures():
        for parameter in info.parameters:
            if parameter.type != measure_info_pb2.PARAMETER_TYPE_ENUM:
                continue
            for alias, full in zip(parameter.allowed_aliases, parameter.allowed_values,
                                   strict=True):
                value = alias
                for part in reversed(parameter.name.split(".")):
                    value = {part: value}
                message, *rest = [wire(info.id, **value)]
                for part in parameter.name.split(".")[:-1]:
                    message = getattr(message, part)
                last = parameter.name.split(".")[-1]
                number = getattr(message, last)
                descriptor = message.DESCRIPTOR.fields_by_name[last].enum_type
                assert descriptor.values_by_number[number].name == full
                seen += 1
    assert seen > 60


def test_every_measure_runs_with_all_of_its_parameters(client):
    further = {
        "steadiness_cohesiveness": {"iteration": 3, "clustering_strategy": "kmeans",
                                    "cluster_count": 2, "workers": 2, "seed": 4,
                                    "local_weight": "own", "walk_num_ratio": 0.2, "alpha": 0.2},
        "class_angular_distortion_index": {"n_triplets": 50, "seed": 3},
        "label_trustworthiness_and_continuity": {"cvm": "ch_btw", "seed": 3,
                                                 "arithmetic": "float64"},
        "procrustes": {"pairing": "identity"},
        "gap_index": {"metric": "minkowski", "minkowski_p": 3.0},
        "internal_validation_measure": {"measure": "davies_bouldin"},
        "clustering_and_external_validation_measure": {
            "clustering": "dbscan", "measure": "ami",
            "dbscan": {"eps": 0.3, "min_samples": 3, "metric": "cityblock"}},
        "kl_divergence": {"sigma": 0.2}, "distance_to_measure": {"sigma": np.float32(0.2)},
    }
    specs = []
    for info in client.measures():
        parameters = dict(further.get(info.id, {}))
        if any(parameter.name == "k" for parameter in info.parameters):
            parameters["k"] = 7
        specs.append((info.alias, parameters))
    item, = client.measure(HD, specs, LD, labels=LABELS)
    assert len(item.values) == 22 and all(item.values)


def test_seeds_repeat_and_are_told(client):
    specs = [("snc", {"iteration": 5}), "cadi"]
    first, = client.measure(HD, specs, LD, labels=LABELS)
    again, = client.measure(HD, [("snc", {"iteration": 5, "seed": first.seeds[0]}),
                                 ("cadi", {"seed": first.seeds[1]})], LD, labels=LABELS)
    assert again.values == first.values and again.seeds == first.seeds


def test_numpys_random_numbers_are_others(client):
    values = [next(client.measure(HD, ("cadi", {"seed": 3}), LD, labels=LABELS, rng=rng)).values
              for rng in ("counter", "numpy", "counter")]
    assert values[0] == values[2] != values[1]


def test_zadus_words():
    message = wire("steadiness_cohesiveness", random_state=5, n_jobs=3,
                   clustering_strategy="12-means")
    assert (message.random.seed, message.workers, message.cluster_count) == (5, 3, 12)
    assert wire("class_angular_distortion_index", random_seed=7, rng="numpy").random.generator == 2
    assert wire("label_trustworthiness_and_continuity", cvm="CH_BTW", seed=1).random.seed == 1
    assert not wire("label_trustworthiness_and_continuity", cvm="dsc").HasField("random")
    assert wire("gap_index", metric=max, matrix=lambda function: "datasets/x").precomputed_handle
    clustering = "clustering_and_external_validation_measure"
    message = wire(clustering, clustering_args={
        "n_clusters": 4, "n_init": "auto", "init": "k-means++", "tol": 1e-3, "max_iter": 7,
        "random_state": 9, "algorithm": "lloyd", "verbose": 0, "copy_x": True})
    assert message.kmeans.n_clusters == 4 and message.kmeans.random.seed == 9
    assert not message.kmeans.HasField("n_init") and message.kmeans.max_iter == 7
    message = wire(clustering, clustering="DBSCAN", clustering_args={
        "metric": "minkowski", "metric_params": {"p": 3}, "eps": 1, "n_jobs": 2})
    assert message.dbscan.minkowski_p == 3 and message.dbscan.eps == 1
    assert wire(clustering, clustering="dbscan",
                clustering_args={"metric": "l1"}).dbscan.metric == 3


@pytest.mark.parametrize("name,parameters,error", [
    ("steadiness_cohesiveness", {"clustering_strategy": "x-means"}, tenon.InvalidRequest),
    ("steadiness_cohesiveness", {"clustering_strategy": "²-means"}, tenon.InvalidRequest),
    ("steadiness_cohesiveness", {"random_state": -1}, tenon.InvalidRequest),
    ("steadiness_cohesiveness", {"random_state": 2**70}, tenon.InvalidRequest),
    ("steadiness_cohesiveness", {"random_state": True}, TypeError),
    ("clustering_and_external_validation_measure",
     {"clustering_args": {"init": np.ones((2, 2))}}, tenon.Unsupported),
    ("clustering_and_external_validation_measure",
     {"clustering": "dbscan", "clustering_args": {"metric": max}}, tenon.Unsupported),
    ("clustering_and_external_validation_measure",
     {"clustering": "dbscan", "clustering_args": {"n_clusters": 3}}, TypeError),
    ("gap_index", {"metric": "mahalanobis"}, tenon.InvalidRequest),
    ("gap_index", {"metric": 7}, TypeError),
])
def test_words_without_a_meaning(name, parameters, error):
    with pytest.raises(error):
        wire(name, **parameters)


def test_seeds_of_generators():
    assert _random.seed_of(np.int64(12)) == 12
    generator = np.random.default_rng(1)
    assert _random.seed_of(generator) != _random.seed_of(generator)
    assert _random.seed_of(np.random.default_rng(1)) == _random.seed_of(np.random.default_rng(1))
    state = np.random.RandomState(77)
    assert _random.seed_of(state) == 77 != _random.seed_of(state)
    np.random.seed(2**32 - 5)
    assert _random.seed_of(None) == 2**32 - 5
    drawn = _random.seed_of(None)
    np.random.seed(2**32 - 5)
    np.random.rand(1000)
    assert _random.seed_of(None) not in (2**32 - 5, drawn)


def test_a_function_becomes_a_matrix(client):
    def city(a, b):
        return np.abs(a - b).sum()

    by_name, = client.measure(HD, ("gi", {"metric": "cityblock"}), LD)
    by_function, = client.measure(HD, ("gi", {"metric": city}), LD)
    assert by_function["gap_index"] == pytest.approx(by_name["gap_index"], rel=1e-12)
    with client.datasets.put(HD) as dataset:
        with pytest.raises(tenon.InvalidRequest, match="function"):
            client.measure(dataset, ("gi", {"metric": city}), LD)
