"""Data sets that the server keeps."""

import numpy as np
import pytest

import tenon
from measure_oracles import distances, stress

NUMBERS = np.random.default_rng(5)
HD = NUMBERS.standard_normal((60, 5))
LD = NUMBERS.standard_normal((60, 2))
STRESS = stress(distances(HD), distances(LD))


def test_put_use_delete(client):
    dataset = client.datasets.put(HD, name="five columns")
    assert dataset.shape == (60, 5) and dataset.dtype == np.float64
    assert dataset.message.display_name == "five columns"
    for data in (dataset, dataset.handle):
        item, = client.measure(data, "stress", LD)
        assert item["stress"] == pytest.approx(STRESS)
    assert dataset.message.resource_bytes == 0 < dataset.refresh().resource_bytes
    assert dataset.delete() >= HD.nbytes
    with pytest.raises(tenon.NotFound):
        list(client.measure(dataset, "stress", LD))
    with pytest.raises(tenon.NotFound):
        dataset.delete()


def test_what_is_warm_is_not_built_again(client):
    with client.datasets.put(HD) as dataset:
        reused = []
        for _ in range(2):
            stream = client.measure(dataset, "stress", LD)
            list(stream)
            reused.append(stream.report.original_resources_reused)
        assert reused == [False, True]


def test_a_call_can_keep_its_data_set(client):
    stream = client.measure(HD, "stress", LD, keep=True)
    list(stream)
    dataset = client.datasets.get(stream.report.dataset)
    item, = client.measure(dataset, "stress", LD)
    assert item["stress"] == pytest.approx(STRESS)
    dataset.delete()


def test_with_statements_delete(client):
    with client.datasets.put(HD) as dataset:
        assert dataset.handle in repr(dataset)
    with pytest.raises(tenon.NotFound):
        client.datasets.get(dataset.handle)
    with client.datasets.put(HD) as dataset:
        dataset.delete()
    with pytest.raises(ZeroDivisionError):
        with client.datasets.put(HD) as dataset:
            1 / 0
    with pytest.raises(tenon.NotFound):
        dataset.refresh()


def test_large_ones_go_in_chunks(client):
    large = NUMBERS.standard_normal((400_000, 3))
    with client.datasets.put(large.astype(np.float32)) as dataset:
        assert dataset.dtype == np.float32 and dataset.message.size_bytes == 4_800_000


def test_all_are_listed(client):
    made = [client.datasets.put(HD + number) for number in range(120)]
    listed = [dataset.handle for dataset in client.datasets.list_all()]
    assert listed[:120] == [dataset.handle for dataset in reversed(made)]
    for dataset in made:
        dataset.delete()


def test_they_may_be_given_a_time_to_live(client):
    with client.datasets.put(HD, ttl=60) as dataset:
        lives = dataset.message.expire_time.seconds - dataset.message.create_time.seconds
        assert 58 <= lives <= 62


@pytest.mark.parametrize("value,options,reason", [
    (HD[:, 0], {}, "SHAPE_MISMATCH"), (HD[:1], {}, None), (HD * np.nan, {}, "NOT_FINITE"),
    (HD.astype(str), {}, "UNSUPPORTED_DTYPE"), ([[1], [1, 2]], {}, "SHAPE_MISMATCH"),
    (HD, {"ttl": -1}, "BAD_PARAMETER"), (HD, {"name": "x" * 300}, None)])
def test_bad_ones_are_refused(client, value, options, reason):
    with pytest.raises(tenon.InvalidRequest) as caught:
        client.datasets.put(value, **options)
    assert reason is None or caught.value.reason == reason


def test_a_large_one_that_is_refused_in_the_middle(client):
    large = np.ones((400_000, 4))
    large[200_000, 1] = np.nan
    with pytest.raises(tenon.InvalidRequest) as caught:
        client.datasets.put(large)
    assert caught.value.reason == "NOT_FINITE"


def test_unknown_handles(client):
    with pytest.raises(tenon.NotFound):
        client.datasets.get("datasets/" + "0" * 64)
    with pytest.raises(tenon.TenonError):
        client.datasets.get("rubbish")
