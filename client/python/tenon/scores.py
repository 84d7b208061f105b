"""What a measurement answers: the scores of each projection, and a report of the call."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tenon.errors import TenonError
from tenon.reports import bytes_text, seconds_text
from tenon.v1 import measure_report_pb2, measurement_pb2

__all__ = ["MeasurementReport", "Scores"]


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of one projection, or why it has none.

    Attributes:
      index: its place among the projections, from 0.
      name: its name; "" without one.
      values: one dict per measure, in their order: score by key, for example
        ``{"trustworthiness": 0.98, "continuity": 0.99}``; empty where the measure failed.
      local: one entry per measure: None, or a dict of float64 arrays, one value per row; empty
        unless ``return_local``.
      seeds: one entry per measure: the seed that it used, or None.
      measure_errors: one entry per measure: None, or with ``on_error="skip_measure"`` its error.
      error: why the projection has no scores, or None.
      run_info: the message ``tenon.v1.RunInfo``, or None.
    """

    index: int
    name: str = ""
    values: list[dict[str, float]] = dataclasses.field(default_factory=list)
    local: list[dict[str, np.ndarray] | None] = dataclasses.field(default_factory=list)
    seeds: list[int | None] = dataclasses.field(default_factory=list)
    measure_errors: list[TenonError | None] = dataclasses.field(default_factory=list)
    error: TenonError | None = None
    run_info: measure_report_pb2.RunInfo | None = dataclasses.field(default=None, repr=False)

    def __getitem__(self, key: str) -> float:
        """The score of this key.

        Raises the error of the projection or of a measure, if there is one; KeyError when no
        measure has the key, or several have.
        """
        self.raise_for_error()
        found = [values[key] for values in self.values if key in values]
        if len(found) != 1:
            raise KeyError(f"{'several measures have' if found else 'no measure has'} '{key}'")
        return found[0]

    def raise_for_error(self) -> None:
        """Raises the error of the projection, or the first one of its measures."""
        for error in (self.error, *self.measure_errors):
            if error is not None:
                raise error


class MeasurementReport:
    """What a measurement took. Every field of ``tenon.v1.MeasureReport`` is an attribute.

    Attributes:
      summary: the message ``tenon.v1.MeasureSummary``.
      message: its report: times, memory, resources, providers.
      scored, failed: projections with scores, and with an error.
      complete: whether the projections came to their end; False after a stop.
      dataset: handle of the data set, when the server keeps it; else "".
    """

    def __init__(self, summary: measurement_pb2.MeasureSummary) -> None:
        self.summary = summary
        self.message = summary.report
        self.scored = summary.scored_count
        self.failed = summary.error_count
        self.complete = summary.stream_complete
        self.dataset = summary.dataset_handle

    def __getattr__(self, name: str) -> Any:
        if name == "message":  # a copy under construction
            raise AttributeError(name)
        return getattr(self.message, name)

    def __repr__(self) -> str:
        message, timing = self.message, self.message.timing
        lines = [f"{self.scored} projection{'' if self.scored == 1 else 's'} scored, "
                 f"{self.failed} failed" + ("" if self.complete else ", stopped early")]
        parts = [("queued", timing.queue_seconds), ("received", timing.input_receive_seconds),
                 ("original space", message.original_resource_seconds),
                 ("projections", message.resource_seconds), ("measures", message.metric_seconds)]
        lines.append("  " + "".join(f"{name} {seconds_text(seconds)}, "
                                    for name, seconds in parts if seconds > 0)
                     + f"in all {seconds_text(timing.request_seconds)}")
        lines.append(f"  memory {bytes_text(message.memory.planned_peak_bytes)} planned, up to "
                     f"{message.max_in_flight_observed} projections in flight")
        lines.extend(f"  {part.id}: {seconds_text(part.seconds)}"
                     for part in message.measures if part.seconds > 0)
        return "\n".join(lines)
