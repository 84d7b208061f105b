"""Collections and streams, beside zadu's."""

import numpy as np
import pytest

import tenon
from zadu_peer import close, zadu

NUMBERS = np.random.default_rng(7)
HD = NUMBERS.standard_normal((60, 4))
LABELS = np.arange(60) % 3
LDS = [HD[:, :2] + noise * NUMBERS.standard_normal((60, 2)) for noise in (0, 0.1, 0.2, 0.4, 0.8)]
SPECS = [{"id": "tnc", "params": {"k": 9}}, {"id": "dsc"}, {"id": "stress"}]


@pytest.fixture(scope="module", autouse=True)
def default_client(client):
    tenon.set_default_client(client)
    yield
    tenon.set_default_client(None)


def runners(specs=SPECS, workers=1, **options):
    return [package.ZADU(specs, HD, execution=package.ExecutionConfig(embedding_workers=workers),
                         **options) for package in (tenon, zadu)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("local", [False, True])
def test_lists(workers, local):
    mine, theirs = runners(workers=workers, return_local=local)
    for source in (LDS, tuple(LDS), np.stack(LDS), [ld.tolist() for ld in LDS]):
        close(mine.measure_many(source, LABELS), theirs.measure_many(source, LABELS))
    close(mine.measure_many(iter(LDS), labels=LABELS), theirs.measure_many(iter(LDS), LABELS))
    close(mine.measure_many([], LABELS), theirs.measure_many([], LABELS))
    assert mine.last_run_info["embedding_count"] == 0


@pytest.mark.parametrize("workers", [1, 3])
def test_streams(workers):
    mine, theirs = (list(runner.iter_measure_many(iter(LDS), LABELS))
                    for runner in runners(workers=workers, return_local=True))
    close([(item.index, item.result) for item in mine],
          [(item.index, item.result) for item in theirs])
    assert all(isinstance(item, tenon.EmbeddingResult) for item in mine)


def test_records_have_zadus_keys():
    mine, theirs = runners([{"id": "tnc", "params": {"k": 9}}, {"id": "srho"}, {"id": "dtm"}])
    records = []
    for runner in (mine, theirs):
        runner.measure(LDS[0])
        single = runner.last_run_info
        runner.measure_many(LDS)
        many = runner.last_run_info
        stream = runner.iter_measure_many(LDS)
        item = next(stream)
        stream.close()
        records.append((single, many, many["runs"][1], item.run_info, runner.last_run_info,
                        single["resources"][0], single["metrics"][0], single["provider_timings"]))
    for my_record, their_record in zip(*records):
        assert their_record.keys() <= my_record.keys()
    for mine_is, theirs_is in zip(records[0][:5], records[1][:5]):
        for key in ("exact", "dtype", "memory_budget_bytes", "embedding_count", "mode",
                    "input_consumed_count", "stream_complete", "runs_retained", "embedding_index",
                    "pair_temporary_budget_bytes", "temporary_budget_bytes"):
            assert mine_is.get(key) == theirs_is.get(key), key
        assert [part["id"] for part in mine_is["metrics"]] == [
            part["id"] for part in theirs_is["metrics"]]


class Counted:
    """A source that counts what is read, and whether it is closed."""

    def __init__(self, items):
        self._items, self.read, self.closed = iter(items), 0, False

    def __iter__(self):
        return self

    def __next__(self):
        item = next(self._items)
        self.read += 1
        if isinstance(item, Exception):
            raise item
        return item

    def close(self):
        self.closed = True


@pytest.mark.parametrize("workers", [1, 3])
def test_a_stream_reads_no_further_ahead_than_zadu(workers):
    counts = []
    for runner in runners(workers=workers):
        source, seen = Counted(LDS), []
        stream = runner.iter_measure_many(source, LABELS)
        seen.append(source.read)
        for _ in stream:
            seen.append(source.read)
        assert source.closed and runner.last_run_info["stream_complete"]
        counts.append(seen)
    assert all(mine <= theirs for mine, theirs in zip(*counts)) and counts[0][0] == 0


@pytest.mark.parametrize("workers", [1, 3])
def test_a_stream_may_be_closed(workers):
    for runner in runners(workers=workers):
        source = Counted(LDS)
        stream = runner.iter_measure_many(source, LABELS)
        assert next(stream).index == 0 and runner.last_run_info is None
        stream.close()
        info = runner.last_run_info
        assert source.closed and not info["stream_complete"] and info["embedding_count"] == 1
        assert info["input_consumed_count"] == source.read
        with pytest.raises(StopIteration):
            next(stream)
        close(runner.emb, LDS[0])


def test_a_stream_that_never_began():
    for runner in runners():
        source = Counted(LDS)
        runner.iter_measure_many(source, LABELS).close()
        assert not source.closed and source.read == 0 and runner.last_run_info is None


@pytest.mark.parametrize("bad,error", [
    (LDS[0][:5], ValueError), (LDS[0] * np.nan, ValueError), ("abc", ValueError),
    (LDS[0].astype(str), TypeError), (ZeroDivisionError(), ZeroDivisionError)])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_item_raises_when_it_is_read(bad, error, workers):
    for runner in runners(workers=workers):
        source = Counted([LDS[0], LDS[1], bad, LDS[2]])
        stream = runner.iter_measure_many(source, LABELS)
        with pytest.raises(error) as caught:
            for _ in range(3):
                next(stream)
        assert not isinstance(caught.value, (zadu.EmbeddingExecutionError,
                                             tenon.EmbeddingExecutionError))
        assert source.closed and runner.last_run_info is None and list(stream) == []
        with pytest.raises(error):
            runner.measure_many(Counted([LDS[0], bad]), LABELS)


@pytest.mark.parametrize("embeddings,error", [
    ("abc", TypeError), (b"abc", TypeError), (3, TypeError), (None, TypeError),
    (LDS[0], ValueError)])
def test_what_is_no_collection(embeddings, error):
    for runner in runners():
        with pytest.raises(error):
            runner.measure_many(embeddings, LABELS)
        with pytest.raises(error):
            runner.iter_measure_many(embeddings, LABELS)


@pytest.mark.parametrize("label", [None, LABELS[:5], LABELS * np.nan])
def test_labels_are_looked_at_before_anything_is_read(label):
    for runner in runners():
        source = Counted(LDS)
        with pytest.raises(ValueError):
            runner.iter_measure_many(source, label)
        assert source.read == 0
        with pytest.raises(ValueError):
            runner.measure_many(LDS, label)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_execution_that_fails(workers):
    same = np.zeros((60, 2))
    for runner in runners([{"id": "sn_stress"}], workers):
        kind = (zadu if isinstance(runner, zadu.ZADU) else tenon).EmbeddingExecutionError
        with pytest.raises(kind) as caught:
            runner.measure_many([LDS[0], LDS[1], same, LDS[2]])
        assert caught.value.embedding_index == 2 and isinstance(caught.value.__cause__, ValueError)
        source, seen = Counted([LDS[0], LDS[1], same, LDS[2]]), []
        stream = runner.iter_measure_many(source)
        with pytest.raises(kind) as caught:
            for item in stream:
                seen.append(item.index)
        assert seen == [0, 1] and caught.value.embedding_index == 2
        assert isinstance(caught.value.__cause__, ValueError)
        assert source.closed and runner.last_run_info is None


@pytest.mark.parametrize("spec,label,cause", [
    ({"id": "ivm", "params": {"measure": "beauty"}}, LABELS, ValueError),
    ({"id": "dsc"}, np.zeros(60), ValueError),
    ({"id": "cadi", "params": {"n_triplets": 1.5}}, LABELS, TypeError)])
def test_parameters_that_measuring_looks_at(spec, label, cause):
    for runner in runners([spec]):
        kind = (zadu if isinstance(runner, zadu.ZADU) else tenon).EmbeddingExecutionError
        for call in (runner.measure_many, lambda *a: list(runner.iter_measure_many(*a))):
            with pytest.raises(kind) as caught:
                call(LDS, label)
            assert caught.value.embedding_index == 0
            assert isinstance(caught.value.__cause__, cause)


def test_a_runner_keeps_a_copy_of_everything():
    hd, specs = HD.copy(), [{"id": "tnc", "params": {"k": 9}}]
    runner = tenon.ZADU(specs, hd)
    before = runner.measure(LDS[1])
    hd[:] = 0
    specs[0]["params"]["k"] = 3
    assert runner.measure(LDS[1]) == before and not runner.orig.flags.writeable
    assert runner.spec_list == [{"id": "trustworthiness_continuity", "params": {"k": 9}}]


def test_a_failed_call_leaves_no_record():
    runner = tenon.ZADU([{"id": "sn_stress"}], HD)
    runner.measure(LDS[0])
    assert runner.last_run_info["total_seconds"] > 0
    with pytest.raises(ValueError):
        runner.measure(np.zeros((60, 2)))
    assert runner.last_run_info is None


def test_a_data_set_that_the_server_has_forgotten_is_sent_again():
    with tenon.Client() as client:
        runner = tenon.ZADU([{"id": "stress"}, {"id": "gi", "params": {"metric": lambda a, b:
                             abs(a - b).sum()}}], HD, client=client)
        before = runner.measure(LDS[1])
        for dataset in client.datasets.list_all():
            dataset.delete()
        assert runner.measure(LDS[1]) == before


def test_verbose_prints_the_measures(capsys):
    tenon.ZADU(SPECS, HD, verbose=True).measure(LDS[0], LABELS)
    printed = capsys.readouterr().out
    for spec in SPECS:
        assert tenon.ZADU.ABBREVIATIONS[spec["id"]] in printed
