"""Which provider did what, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tenon.pictures import _colours, _drawing


class _Span(NamedTuple):
    item: int
    provider: str
    worker: int
    begin: float
    end: float


def timeline(report: Any, ax: Any = None, *, legend: bool = True) -> Any:
    """A row per provider and worker, a bar per slice group or projection.

    What one worker has in flight at the same time stands in several rows.

    Args:
      report: a `ContractionReport` or `MeasurementReport` that was asked for with
        ``detail="timeline"``; or an iterable of ``tenon.v1.TimelineEvent``, or of tuples (item,
        provider, worker, begin, end), in seconds after the start of execution. An end that is NaN:
        completion was not verified.
      ax: where to draw.
      legend: whether the providers are listed with the number of their items.

    Returns:
      The axes: a ``PolyCollection`` of bars per provider, in order of their names, and a
      ``PathCollection`` of begins for what has no end. x is in seconds.

    Raises:
      InvalidRequest: MISSING_FIELD without any span; BAD_PARAMETER for spans that mean nothing.
    """
    spans, noun = _spans(report)
    rows, names = _rows(spans)
    ax = _drawing.axes(ax, (8.0, 1.6 + 0.3 * len(names)))
    providers = [span.provider for span in spans]
    for number, provider in enumerate(sorted(set(providers))):
        own = [place for place, name in enumerate(providers) if name == provider]
        _add_bars(ax, [(spans[place], rows[place]) for place in own], _colours.of_name(number),
                  f"{provider}: {len(own)} " + (noun if len(own) != 1 else noun.removesuffix("s")))
    _add_unverified(ax, spans, rows)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.xaxis.set_major_formatter(_drawing.matplotlib("ticker").EngFormatter(unit="s"))
    ax.set_xlabel("time after the start of execution")
    ax.autoscale_view(scaley=False)
    if legend:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize="small")
    return ax


def _spans(report: Any) -> tuple[list[_Span], str]:
    events, noun = report, "items"
    if hasattr(report, "timeline"):
        events = report.timeline
        noun = "slice groups" if hasattr(report, "slice_groups") else "projections"
    if isinstance(events, (str, bytes)) or not isinstance(events, Iterable):
        raise _drawing.bad("a timeline is a report or an iterable of spans, not "
                           + type(report).__name__, "report")
    spans = [_span(event, number) for number, event in enumerate(events)]
    if not spans:
        raise _drawing.bad("there are no time spans: ask for the report with detail='timeline'",
                           "report", "MISSING_FIELD")
    return spans, noun


def _span(event: Any, number: int) -> _Span:
    if hasattr(event, "begin_seconds"):
        event = (event.item, event.provider, event.worker, event.begin_seconds, event.end_seconds)
    field = f"timeline[{number}]"
    try:
        item, provider, worker, begin, end = event
        span = _Span(int(item), str(provider), int(worker), float(begin), float(end))
    except (TypeError, ValueError):
        raise _drawing.bad("a span is (item, provider, worker, begin, end), not "
                           f"{event!r}", field) from None
    if not math.isfinite(span.begin) or math.isinf(span.end) or span.end < span.begin:
        raise _drawing.bad(f"a span from {span.begin} to {span.end} seconds", field)
    return span


def _rows(spans: list[_Span]) -> tuple[list[int], list[str]]:
    """The row of each span, and the names of the rows. What overlaps within a worker gets rows of
    its own, as few as possible."""
    free: dict[tuple[str, int], list[float]] = {}  # when each row of a worker is free again
    places = {}
    for place in sorted(range(len(spans)), key=lambda place: spans[place].begin):
        span = spans[place]
        ends = free.setdefault((span.provider, span.worker), [])
        row = next((row for row, end in enumerate(ends) if end <= span.begin), len(ends))
        ends[row:row + 1] = [span.begin if math.isnan(span.end) else span.end]
        places[place] = row
    first, names = {}, []
    for provider, worker in sorted(free):
        first[provider, worker] = len(names)
        names += [f"{provider}, worker {worker}"] + [""] * (len(free[provider, worker]) - 1)
    return [first[span.provider, span.worker] + places[place]
            for place, span in enumerate(spans)], names


def _add_bars(ax: Any, spans: list[tuple[_Span, int]], look: dict[str, str], label: str) -> None:
    bars = [[(span.begin, row - 0.4), (span.end, row - 0.4), (span.end, row + 0.4),
             (span.begin, row + 0.4)] for span, row in spans if not math.isnan(span.end)]
    ax.add_collection(_drawing.matplotlib("collections").PolyCollection(
        np.array(bars).reshape(-1, 4, 2), edgecolors="white", linewidths=0.4, label=label, **look))


def _add_unverified(ax: Any, spans: list[_Span], rows: list[int]) -> None:
    begun = [(span.begin, row) for span, row in zip(spans, rows) if math.isnan(span.end)]
    if begun:
        ax.scatter(*zip(*begun), marker=">", s=30, c="black",
                   label="begun, completion not verified", zorder=3)
