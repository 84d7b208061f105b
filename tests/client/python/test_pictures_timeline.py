"""The timeline: bars by provider and worker; and the option detail= that asks for it."""

import drawn
import numpy as np
import pytest
from drawn import pyplot

import tenon
from tenon import pictures
from tenon.v1 import contraction_pb2, report_pb2

SPANS = [(0, "cpu", 0, 0.0, 0.5), (1, "cpu", 1, 0.1, 0.4), (2, "cuda:0", 0, 0.2, 0.3),
         (3, "cpu", 0, 0.5, 0.9)]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def bars(ax):
    """(begin, end, row) of every bar, by the provider's label."""
    found = {}
    for collection in drawn.polygons(ax):
        corners = [path.vertices for path in collection.get_paths()]
        found[collection.get_label()] = [
            (corner[:, 0].min(), corner[:, 0].max(),
             round((corner[:, 1].min() + corner[:, 1].max()) / 2)) for corner in corners]
    return found


def rows(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def events(spans=SPANS):
    return [report_pb2.TimelineEvent(item=item, provider=provider, worker=worker,
                                     begin_seconds=begin, end_seconds=end)
            for item, provider, worker, begin, end in spans]


@pytest.mark.parametrize("source,noun", [
    (SPANS, "items"), (iter(SPANS), "items"), (events(), "items"),
    (contraction_pb2.ContractionReport(timeline=events()), "slice groups"),
    (tenon.ContractionReport(contraction_pb2.ContractionReport(timeline=events())),
     "slice groups")])
def test_every_span_is_a_bar_in_the_row_of_its_worker(source, noun):
    ax = pictures.timeline(source)
    assert rows(ax) == ["cpu, worker 0", "cpu, worker 1", "cuda:0, worker 0"]
    assert bars(ax) == {f"cpu: 3 {noun}": [(0.0, 0.5, 0), (0.1, 0.4, 1), (0.5, 0.9, 0)],
                        f"cuda:0: 1 {noun.removesuffix('s')}": [(0.2, 0.3, 2)]}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(bars(ax))
    colours = {tuple(part.get_facecolor()[0]) for part in drawn.polygons(ax)}
    assert len(colours) == 2
    low, high = ax.get_xlim()
    assert low <= 0 and 0.9 <= high < 1.2 and ax.get_ylim() == (2.5, -0.5)
    drawn.render(ax)


def test_time_has_its_unit():
    ax = pictures.timeline([(0, "cpu", 0, 0.0, 2e-3)])
    drawn.render(ax)
    assert "ms" in "".join(label.get_text() for label in ax.get_xticklabels())
    assert "after the start of execution" in ax.get_xlabel()


def test_what_overlaps_in_a_worker_has_rows_of_its_own():
    ax = pictures.timeline([(0, "cpu", 0, 0, 2), (1, "cpu", 0, 1, 3), (2, "cpu", 0, 2, 4),
                            (3, "gpu", 0, 0, 1)])
    assert rows(ax) == ["cpu, worker 0", "", "gpu, worker 0"]
    assert bars(ax) == {"cpu: 3 items": [(0, 2, 0), (1, 3, 1), (2, 4, 0)],
                        "gpu: 1 item": [(0, 1, 2)]}


def test_what_is_not_verified_has_a_begin_alone():
    ax = pictures.timeline([(0, "cpu", 0, 0, 2), (1, "gpu", 0, 1, float("nan"))])
    mark, = drawn.marks(ax)
    assert mark.get_offsets().tolist() == [[1, 1]]
    assert bars(ax) == {"cpu: 1 item": [(0, 2, 0)], "gpu: 1 item": []}
    assert "not verified" in ax.get_legend().get_texts()[-1].get_text()
    drawn.render(ax)


def test_axes_are_used_and_returned():
    ax = drawn.new_axes()
    assert pictures.timeline(SPANS, ax, legend=False) is ax and ax.get_legend() is None
    assert len(pyplot.get_fignums()) == 1


@pytest.mark.parametrize("source,reason,field", [
    ([], "MISSING_FIELD", "report"),
    (contraction_pb2.ContractionReport(), "MISSING_FIELD", "report"),
    (7, "BAD_PARAMETER", "report"),
    ("abc", "BAD_PARAMETER", "report"),
    ([(0, "cpu", 0, 0.5)], "BAD_PARAMETER", "timeline[0]"),
    ([5], "BAD_PARAMETER", "timeline[0]"),
    ([SPANS[0], (1, "cpu", "x", 0, 1)], "BAD_PARAMETER", "timeline[1]"),
    ([(0, "cpu", 0, 2, 1)], "BAD_PARAMETER", "timeline[0]"),
    ([(0, "cpu", 0, float("nan"), 1)], "BAD_PARAMETER", "timeline[0]"),
    ([(0, "cpu", 0, 0, float("inf"))], "BAD_PARAMETER", "timeline[0]"),
    ([(float("nan"), "cpu", 0, 0, 1)], "BAD_PARAMETER", "timeline[0]"),
])
def test_what_is_wrong_is_said(source, reason, field):
    with pytest.raises(tenon.InvalidRequest) as caught:
        pictures.timeline(source)
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert not pyplot.get_fignums()


# The option

def test_a_measurement_tells_the_spans_of_its_projections(client):
    points = np.random.default_rng(0).standard_normal((50, 4))
    stream = client.measure(points, "stress", [points[:, :2], points[:, 2:]], detail="timeline")
    assert len(list(stream)) == 2
    ax = pictures.timeline(stream.report)
    (label, drawn_bars), = bars(ax).items()
    assert label == "cpu: 2 projections"
    assert [bar[:2] for bar in drawn_bars] == [(event.begin_seconds, event.end_seconds)
                                               for event in stream.report.timeline]
    plain = client.measure(points, "stress", [points[:, :2]])
    list(plain)
    with pytest.raises(tenon.InvalidRequest, match="detail='timeline'"):
        pictures.timeline(plain.report)


def test_a_contraction_tells_the_spans_of_its_slice_groups(client):
    a = np.ones((40, 40))
    _, report = client.einsum("ab,bc,cd->ad", a, a, a, return_info=True, detail="timeline")
    assert len(report.timeline) == report.slice_groups
    pictures.timeline(report)


def test_a_brief_report_has_no_path_and_a_text(client):
    a = np.ones((4, 4))
    _, full = client.einsum("ab,bc->ac", a, a, return_info=True)
    assert full.message.plan.HasField("path")
    for detail in ("full", "timeline"):
        _, report = client.einsum("ab,bc->ac", a, a, return_info=True, detail=detail)
        assert report.message.plan.HasField("path")
    _, brief = client.einsum("ab,bc->ac", a, a, return_info=True, detail="brief")
    assert not brief.message.HasField("plan")
    assert repr(brief).startswith("contraction, 1 slice, 10^1.81 multiply-adds")
    stream = client.measure(np.eye(4), "stress", np.eye(4)[:, :2], detail="brief")
    assert len(list(stream)) == 1
    assert not stream.report.original_resources and "1 projection scored" in repr(stream.report)


def test_an_unknown_detail_is_refused(client):
    for call in (lambda: client.einsum("a->", [1.0], detail="all"),
                 lambda: list(client.measure(np.eye(4), "stress", np.eye(4), detail="all"))):
        with pytest.raises(tenon.InvalidRequest, match="brief, full, timeline") as caught:
            call()
        assert (caught.value.reason, caught.value.field) == ("BAD_PARAMETER", "detail")
