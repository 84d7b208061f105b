"""Client.measure: sources, order, back pressure, errors in their places, ends."""

import gc
import itertools
import threading
import time

import numpy as np
import pytest

import tenon
from measure_oracles import arc_distances, distances, ranks, stress, trustworthiness
from tenon._arrays import spec_of
from tenon._measure_header import Opening
from tenon._measure_upload import END, STOP, Upload
from tenon.v1 import measurement_pb2

NUMBERS = np.random.default_rng(11)
HD = NUMBERS.standard_normal((80, 6))
LABELS = np.arange(80) % 3


def projection(scale=0.1):
    return HD[:, :2] + scale * NUMBERS.standard_normal((80, 2))


PROJECTIONS = [projection(scale) for scale in (0.0, 0.2, 0.4, 0.8)]


def expected(ld, hd=HD, k=10):
    return trustworthiness(ranks(distances(hd)), ranks(distances(ld)), k)


def check(items, arrays=PROJECTIONS):
    items = list(items)
    assert [item.index for item in items] == list(range(len(arrays)))
    for item, array in zip(items, arrays, strict=True):
        assert item["trustworthiness"] == pytest.approx(expected(array), abs=1e-12)
    return items


TNC = [("tnc", {"k": 10})]


@pytest.mark.parametrize("measures", [
    ("tnc", {"k": 10}), [("trustworthiness_continuity", {"k": 10})],
    [{"id": "tnc", "params": {"k": 10}}],
    [{"id": tenon.MEASURE.TNC, "params": {"k": np.int64(10)}}]])
def test_forms_of_measures(client, measures):
    check(client.measure(HD, measures, PROJECTIONS))


@pytest.mark.parametrize("source", [
    lambda: PROJECTIONS, lambda: tuple(PROJECTIONS), lambda: iter(PROJECTIONS),
    lambda: np.stack(PROJECTIONS), lambda: (array for array in PROJECTIONS),
    lambda: [array.tolist() for array in PROJECTIONS]])
def test_forms_of_projections(client, source):
    check(client.measure(HD, TNC, source()))


def test_names(client):
    named = {"pca": PROJECTIONS[0], "t-SNE ü": PROJECTIONS[1]}
    for source in (named, list(named.items()), iter(named.items())):
        items = check(client.measure(HD, TNC, source), PROJECTIONS[:2])
        assert [item.name for item in items] == list(named)
    assert [item.name for item in client.measure(HD, TNC, PROJECTIONS[0])] == [""]


def test_several_measures_keep_their_order_and_keys(client):
    item, = client.measure(HD, ["stress", ("tnc", {"k": 10}), ("tnc", {"k": 5}), "mrre", "snc"],
                           PROJECTIONS[1])
    assert [list(values) for values in item.values] == [
        ["stress"], ["trustworthiness", "continuity"], ["trustworthiness", "continuity"],
        ["mrre_false", "mrre_missing"], ["steadiness", "cohesiveness"]]
    assert item["stress"] == pytest.approx(stress(distances(HD), distances(PROJECTIONS[1])))
    assert item.seeds[:4] == [None] * 4 and item.seeds[4] is not None
    with pytest.raises(KeyError, match="several"):
        item["trustworthiness"]
    with pytest.raises(KeyError, match="no measure"):
        item["beauty"]


def test_no_measures_and_no_projections(client):
    assert [item.values for item in client.measure(HD, [], PROJECTIONS)] == [[]] * 4
    stream = client.measure(HD, TNC, [])
    assert list(stream) == [] and stream.report.complete and stream.report.scored == 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32",
                                   "float64", "longdouble", ">f8", ">i4"])
def test_element_types(client, dtype):
    hd, ld = (10 * HD).astype(dtype), (10 * PROJECTIONS[1]).astype(dtype)
    item, = client.measure(hd, TNC, ld)
    assert item["trustworthiness"] == pytest.approx(
        expected(ld.astype(float), hd.astype(float)), abs=1e-12)


def test_layouts(client):
    wide = np.zeros((160, 12))
    wide[::2, ::2] = HD
    item, = client.measure(wide[::2, ::2], TNC, np.asfortranarray(PROJECTIONS[1]))
    assert item["trustworthiness"] == pytest.approx(expected(PROJECTIONS[1]), abs=1e-12)


def test_large_arrays_go_in_chunks(client):
    hd = NUMBERS.standard_normal((9000, 20))
    lds = [NUMBERS.standard_normal((9000, 18)) for _ in range(2)]
    labels = [f"class {number % 7} " + "x" * 50 for number in range(9000)]
    items = list(client.measure(hd, [("nh", {"k": 5}), ("lcmc", {"k": 5})], lds, labels=labels,
                                return_local=True))
    for item in items:
        for values, local in zip(item.values, item.local):
            (key, value), (local_key, array), = *values.items(), *local.items()
            assert local_key == "local_" + key and array.shape == (9000,)
            assert array.mean() == pytest.approx(value, abs=1e-12)


def test_local_scores(client):
    item, = client.measure(HD, ["tnc", "stress"], PROJECTIONS[2], return_local=True)
    assert list(item.local[0]) == ["local_trustworthiness", "local_continuity"]
    assert item.local[1] is None
    assert item.local[0]["local_continuity"].mean() == pytest.approx(item["continuity"])
    assert list(client.measure(HD, ["tnc"], PROJECTIONS[2]))[0].local == []


def test_geodesic_distances(client):
    sphere = NUMBERS.uniform(-1.5, 1.5, (60, 2))
    item, = client.measure(sphere, ["stress"], sphere, geodesic=True)
    assert item["stress"] == pytest.approx(stress(arc_distances(sphere), distances(sphere)))


@pytest.mark.parametrize("labels", [
    LABELS, LABELS.tolist(), LABELS / 2, LABELS.astype(np.uint8), LABELS.astype(bool) | True,
    np.array(["a", "b", "ü"])[LABELS], np.array([b"a", b"b", b"c"])[LABELS],
    np.array(["a", "b", "c"], object)[LABELS], np.array([1, 2, 3], object)[LABELS],
    np.array([1, 2.5, 3], object)[LABELS]])
def test_labels(client, labels):
    item, = client.measure(HD, [("nh", {"k": 7})], PROJECTIONS[0], labels=labels)
    near = ranks(distances(PROJECTIONS[0]))
    same = np.asarray(labels)[:, None] == np.asarray(labels)[None]
    assert item["neighborhood_hit"] == pytest.approx(same[(near > 0) & (near <= 7)].mean())


@pytest.mark.parametrize("labels,error", [
    (None, tenon.InvalidRequest), (LABELS[:-1], tenon.InvalidRequest),
    (LABELS[:, None], tenon.InvalidRequest), (np.full(80, np.nan), tenon.InvalidRequest),
    (np.full(80, 2**63, np.uint64), tenon.InvalidRequest), (["a"] * 79, tenon.InvalidRequest),
    (np.array(["a", 1] * 40, object), TypeError), (np.full(80, 1j), TypeError),
    (np.array([None] * 80), TypeError)])
def test_bad_labels(client, labels, error):
    with pytest.raises(error):
        list(client.measure(HD, ["nh"], PROJECTIONS, labels=labels))


class Counted:
    """An endless source that counts what is read."""

    def __init__(self):
        self.read, self.threads, self.closed = 0, set(), False

    def __iter__(self):
        return self

    def __next__(self):
        self.read += 1
        self.threads.add(threading.get_ident())
        return PROJECTIONS[self.read % 4]

    def close(self):
        self.closed = True


@pytest.mark.parametrize("in_flight", [1, 3, None])
def test_few_projections_are_read_ahead(client, in_flight):
    source = Counted()
    stream = client.measure(HD, TNC, source, in_flight=in_flight)
    for returned, _ in enumerate(itertools.islice(stream, 40), 1):
        ahead = in_flight or 1 + stream.accepted.memory.in_flight
        assert source.read <= returned + ahead - 1
    stream.close()
    assert source.closed and source.threads == {threading.get_ident()}
    assert stream.report.scored >= 40 and not stream.report.complete
    assert list(stream) == []


def test_close_before_and_after_everything(client):
    source = Counted()
    stream = client.measure(HD, TNC, source)
    stream.close()
    assert source.read == 0 and source.closed and stream.report is None and list(stream) == []
    stream = client.measure(HD, TNC, PROJECTIONS)
    list(stream)
    report = stream.report
    stream.close()
    stream.cancel()
    assert stream.report is report and report.complete and report.scored == 4


@pytest.mark.parametrize("last,frames", [(STOP, ["stop"]), (END, [])])
def test_an_upload_is_cut_between_two_chunks(last, frames):
    large = np.zeros((1000, 1000))
    upload = Upload(Opening(measurement_pb2.MeasureHeader()))
    upload.grant(1 << 20)
    upload.put((measurement_pb2.Projection(spec=spec_of(large)), large))
    upload.put((measurement_pb2.Projection(index=1, spec=spec_of(large)), large))
    sent = iter(upload)
    assert [next(sent).WhichOneof("frame") for _ in range(3)] == [
        "header", "projection", "projection_chunk"]
    upload.interrupt(last)
    assert [frame.WhichOneof("frame") for frame in sent] == frames


def test_close_in_the_middle_of_an_upload(client):
    """A projection of many chunks is dropped, not finished."""
    hd = NUMBERS.standard_normal((3000, 4))
    stream = client.measure(hd, ["stress"], (NUMBERS.standard_normal((3000, 400))
                                             for _ in itertools.count()), in_flight=3)
    next(stream)
    stream.close()
    assert stream.report.scored >= 1 and not stream.report.complete


def test_the_end_of_a_with_statement_closes(client):
    with client.measure(HD, TNC, Counted()) as stream:
        next(stream)
    assert not stream.report.complete


def wait_until_unused(dataset):
    """The server has noticed that no call works on it any more."""
    for _ in range(1000):
        try:
            return dataset.delete()
        except tenon.Refused as error:
            assert error.reason == "IN_USE"
            time.sleep(0.01)
    raise AssertionError("a call still works on the data set")


def test_an_exception_inside_of_a_with_statement_cancels(client):
    dataset = client.datasets.put(HD)
    source = Counted()
    with pytest.raises(ZeroDivisionError):
        with client.measure(dataset, TNC, source) as stream:
            next(stream)
            1 / 0
    assert source.closed and stream.report is None and list(stream) == []
    assert stream._call.cancelled()
    wait_until_unused(dataset)


def test_an_abandoned_stream_is_cancelled(client):
    dataset = client.datasets.put(HD)
    before = threading.active_count()
    stream = client.measure(dataset, TNC, Counted())
    next(stream)
    with pytest.raises(tenon.Refused):
        dataset.delete()
    call = stream._call
    del stream
    gc.collect()
    assert call.cancelled()
    wait_until_unused(dataset)
    for thread in threading.enumerate()[before:]:  # of gRPC: they end with the call
        thread.join(10)
    assert threading.active_count() <= before


def test_an_exception_of_the_source_passes_unchanged_and_cancels(client):
    dataset = client.datasets.put(HD)

    def broken():
        yield PROJECTIONS[0]
        raise ZeroDivisionError

    stream = client.measure(dataset, TNC, broken(), in_flight=1)
    next(stream)
    with pytest.raises(ZeroDivisionError):
        next(stream)
    assert list(stream) == [] and stream._call.cancelled()
    wait_until_unused(dataset)


def test_an_interrupt_cancels(client):
    dataset = client.datasets.put(NUMBERS.standard_normal((6000, 10)))

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(client.measure(dataset, ["srho", "snc"], (NUMBERS.standard_normal((6000, 2))
                                                       for _ in range(9)),
                            on_progress=interrupt, progress_interval=0.001))
    wait_until_unused(dataset)


def test_progress_is_told(client):
    seen = []
    list(client.measure(NUMBERS.standard_normal((3000, 10)), ["srho", "snc"],
                        [NUMBERS.standard_normal((3000, 2))], on_progress=seen.append,
                        progress_interval=0.001))
    assert seen and all(message.elapsed_seconds >= 0 for message in seen)


BAD = [
    (np.full((80, 2), np.nan), tenon.InvalidRequest, "NOT_FINITE"),
    (HD[:5], tenon.InvalidRequest, "SHAPE_MISMATCH"),
    (HD[:, 0], tenon.InvalidRequest, "SHAPE_MISMATCH"),
    (np.empty((80, 0)), tenon.InvalidRequest, "SHAPE_MISMATCH"),
    (HD.astype(complex), tenon.Unsupported, "UNSUPPORTED_DTYPE"),
    (np.full((80, 2), "x"), tenon.InvalidRequest, "UNSUPPORTED_DTYPE"),
    ([[1], [2, 3]], tenon.InvalidRequest, "SHAPE_MISMATCH"),
    (object(), tenon.InvalidRequest, "UNSUPPORTED_DTYPE"),
    (np.full((80, 2), object()), tenon.InvalidRequest, "UNSUPPORTED_DTYPE"),
]


def test_errors_keep_their_places(client):
    source = [PROJECTIONS[0]]
    for value, _, _ in BAD:
        source += [("bad", value), PROJECTIONS[1]]
    stream = client.measure(HD, TNC, source)
    items = list(stream)
    assert [item.index for item in items] == list(range(len(source)))
    for item in items[::2]:
        item.raise_for_error()
        assert item["trustworthiness"] > 0.5
    for item, (_, kind, reason) in zip(items[1::2], BAD, strict=True):
        assert type(item.error) is kind and item.error.reason == reason and item.name == "bad"
        assert item.values == []
        with pytest.raises(kind):
            item["trustworthiness"]
    assert stream.report.complete and stream.report.scored == len(BAD) + 1


@pytest.mark.parametrize("value,kind,reason", BAD)
def test_errors_can_raise(client, value, kind, reason):
    stream = client.measure(HD, TNC, [PROJECTIONS[0], value, PROJECTIONS[1]], on_error="raise")
    next(stream)
    with pytest.raises(kind) as caught:
        next(stream)
    assert caught.value.reason == reason and list(stream) == []


def test_errors_can_stop(client):
    stream = client.measure(HD, TNC, [PROJECTIONS[0], BAD[0][0], PROJECTIONS[1]], on_error="stop")
    assert [item.error is None for item in stream] == [True, False]
    assert not stream.report.complete


def test_single_measures_can_fail(client):
    same = np.zeros((80, 2))
    item, = client.measure(HD, ["stress", "sn_stress"], same, on_error="skip_measure")
    assert item.values == [{"stress": 1.0}, {}] and item.measure_errors[0] is None
    assert item.measure_errors[1].reason == "UNDEFINED_SCORE" and item.error is None
    with pytest.raises(tenon.InvalidRequest):
        item["stress"]
    item, = client.measure(HD, ["stress", "sn_stress"], same)
    assert item.error.reason == "UNDEFINED_SCORE"


@pytest.mark.parametrize("data,measures,options,error,reason", [
    (HD[:, 0], TNC, {}, tenon.InvalidRequest, "SHAPE_MISMATCH"),
    (HD[:1], TNC, {}, tenon.InvalidRequest, None),
    (np.full_like(HD, np.inf), TNC, {}, tenon.InvalidRequest, "NOT_FINITE"),
    (HD.astype(str), TNC, {}, tenon.InvalidRequest, "UNSUPPORTED_DTYPE"),
    ("datasets/" + "0" * 64, TNC, {}, tenon.NotFound, "NOT_FOUND"),
    ("rubbish", TNC, {}, tenon.TenonError, None),
    (HD, ["beauty"], {}, tenon.InvalidRequest, "UNKNOWN_MEASURE"),
    (HD, [("tnc", {"k": 40})], {}, tenon.InvalidRequest, "K_OUT_OF_RANGE"),
    (HD, [("tnc", {"k": 0})], {}, tenon.InvalidRequest, "K_OUT_OF_RANGE"),
    (HD, [("tnc", {"k": 2**40})], {}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, [("tnc", {"j": 2})], {}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, [("dtm", {"sigma": 0})], {}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, [("ivm", {"measure": "beauty"})], {}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, [{"params": {}}], {}, tenon.InvalidRequest, "MISSING_FIELD"),
    (HD, TNC, {"memory_budget": 1}, tenon.ExceedsBudget, "EXCEEDS_MEMORY_BUDGET"),
    (HD, TNC, {"memory_budget": "much"}, tenon.InvalidRequest, None),
    (HD, ["srho"], {"pair_order": "external"}, tenon.InvalidRequest, None),
    (HD, ["srho"], {"pair_order": "none"}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, TNC, {"providers": "nobody"}, tenon.InvalidRequest, "UNKNOWN_PROVIDER"),
    (HD, TNC, {"providers": ["cpu", "reference"]}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, TNC, {"on_error": "shrug"}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, TNC, {"rng": "dice"}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, TNC, {"in_flight": 0}, tenon.InvalidRequest, "BAD_PARAMETER"),
    (HD, TNC, {"threads": -1}, tenon.InvalidRequest, "BAD_PARAMETER"),
])
def test_bad_requests(client, data, measures, options, error, reason):
    with pytest.raises(error) as caught:
        list(client.measure(data, measures, PROJECTIONS, **options))
    assert reason is None or caught.value.reason == reason


@pytest.mark.parametrize("measures,options,text", [
    (7, {}, "sequence"), ([7], {}, "specs\\[0\\]"), ([("tnc", 7)], {}, "dict"),
    ([("tnc", {"k": 2.0})], {}, "integer"), ([("tnc", {"k": True})], {}, "integer"),
    ([("dtm", {"sigma": "1"})], {}, "real"), ([("ivm", {"measure": 1})], {}, "text"),
    ([("l_tnc", {"rescale_dsc": 1})], {}, "True or False"),
    ([("snc", {"random_state": "x"})], {}, "seed"), (TNC, {"thread": 1}, "thread"),
    ([("c_evm", {"clustering_args": 3})], {}, "dict"), ([("c_evm", {"kmeans": 3})], {}, "dict"),
    ([("cadi", {"random": 3})], {}, "dict"),
    ([("c_evm", {"clustering_args": {"beauty": 3}})], {}, "beauty"),
])
def test_wrong_types(client, measures, options, text):
    with pytest.raises(TypeError, match=text):
        client.measure(HD, measures, PROJECTIONS, **options)


def test_projections_are_needed(client):
    with pytest.raises(tenon.InvalidRequest, match="projections"):
        client.measure(HD, TNC)
    for wrong in (3, "abc", b"abc"):
        with pytest.raises(TypeError, match="iterable"):
            client.measure(HD, TNC, wrong)


def test_a_server_that_goes_away():
    with tenon.Client() as client:
        stream = client.measure(HD, TNC, Counted())
        next(stream)
        client._connection.local._process.kill()
        with pytest.raises(tenon.Unavailable):
            for _ in stream:
                pass
        assert list(stream) == []
        stream.close()


def test_reports(client):
    stream = client.measure(HD, TNC, PROJECTIONS)
    items = list(stream)
    assert "4 projections scored, 0 failed" in repr(stream.report)
    assert stream.report.timing.request_seconds > 0 and stream.report.memory_plan.in_flight >= 1
    assert items[0].run_info.measures[0].id == "trustworthiness_continuity"


def test_execution_options_reach_the_server(client):
    stream = client.measure(HD, ["tnc", "stress"], PROJECTIONS, memory_budget="1MiB", threads=1,
                            in_flight=2, priority="interactive", providers=["cpu"],
                            dtype="float32", batch=1, expected=4, allow_fallback=True)
    float32 = [item["stress"] for item in stream]
    accepted = stream.accepted
    assert accepted.granted.memory_budget_bytes == 1 << 20 and accepted.granted.threads == 1
    assert accepted.memory.in_flight <= 2
    assert float32[1] == pytest.approx(stress(distances(HD), distances(PROJECTIONS[1])), rel=1e-5)


def test_streams_have_no_deadline_of_their_own(client):
    for timeout in (None, 50):
        stream = client.measure(HD, TNC, PROJECTIONS, timeout=timeout)
        list(stream)
        assert stream.accepted.granted.HasField("deadline_seconds") == (timeout is not None)
    stream = client.measure(HD, TNC, Counted(), timeout=0.3)
    with pytest.raises(tenon.DeadlineExceeded):
        for _ in stream:
            pass


def test_pairs_sorted_in_files_give_the_same(client):
    options = {"pair_order": "external", "temporary_budget": "64MiB"}
    inside, = client.measure(HD, ["srho", "nm_stress"], PROJECTIONS[2])
    outside, = client.measure(HD, ["srho", "nm_stress"], PROJECTIONS[2], **options)
    assert outside["spearman_rho"] == pytest.approx(inside["spearman_rho"], rel=1e-12)
    assert outside.run_info.temporary_peak_bytes > 0


def test_files_of_the_server(tmp_path):
    for number, array in enumerate(PROJECTIONS):
        np.save(tmp_path / f"run{number}.npy", array)
    with tenon.Client(flags=[f"--data_root={tmp_path}"]) as client:
        items = check(client.measure(HD, TNC, server_files="*.npy"))
        assert [item.name for item in items] == [f"run{number}.npy" for number in range(4)]
        assert len(list(client.measure(HD, TNC, server_files="*.npy", limit=2))) == 2
        with client.measure(HD, TNC, server_files="*.npy", in_flight=1) as stream:
            next(stream)
        assert stream.report is not None
        with pytest.raises(tenon.TenonError):
            list(client.measure(HD, TNC, server_files="../*.npy"))
