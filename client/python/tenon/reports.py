"""Reports: the messages of the wire, with a text for people."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

from tenon.v1 import contraction_pb2

__all__ = ["ContractionReport"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(size: float) -> str:
    power = min(len(_UNITS) - 1, int(math.log2(size) // 10)) if size >= 1 else 0
    return f"{size / 1024**power:.3g} {_UNITS[power]}"


def seconds_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


class ContractionReport:
    """What a contraction took. Every field of ``tenon.v1.ContractionReport`` is an attribute, every
    field of `fields` an item: ``report["execution_wall_s"]``.

    Args:
      message: the message ``tenon.v1.ContractionReport``.
      dtype: element type of the result.
      names: the caller's name of each index, by its name on the wire.
      asked: options of the search that the caller gave.
      shared_memory: whether operands or the result lay in memory shared with the server.

    Attributes:
      message: the message itself.
      timing: seconds by phase; ``execution_seconds`` is absent where a device's completion was not
        verified.
      plan: path, slices and cost.
      memory: planned and measured bytes.
      providers: what each provider did.
      shared_memory: whether operands or the result lay in memory shared with the server.
    """

    def __init__(self, message: contraction_pb2.ContractionReport, *, dtype: str = "complex128",
                 names: Mapping[str, Hashable] | None = None,
                 asked: Mapping[str, Any] | None = None, shared_memory: bool = False) -> None:
        self.message = message
        self.shared_memory = shared_memory
        self._dtype, self._names, self._asked = dtype, dict(names or {}), dict(asked or {})

    def fields(self) -> dict[str, Any]:
        """The report as a flat dictionary, by the field names that ``backend=`` gives."""
        from tenon import _fields

        return _fields.report_fields(self.message, self._names, self._dtype, self._asked)

    def __getitem__(self, name: str) -> Any:
        return self.fields()[name]

    def keys(self) -> Any:
        """The names of `fields`."""
        return self.fields().keys()

    def __getattr__(self, name: str) -> Any:
        if name == "message":  # not yet there, while it is copied
            raise AttributeError(name)
        return getattr(self.message, name)

    @property
    def execution_seconds(self) -> float | None:
        """Seconds of the work itself; None where its completion was not verified."""
        timing = self.message.timing
        return timing.execution_seconds if timing.HasField("execution_seconds") else None

    def __repr__(self) -> str:
        message = self.message
        slices, log10_flops = message.plan.slices, message.plan.log10_flops
        if not message.HasField("plan"):  # a brief report
            slices = message.slices
            log10_flops = math.log10(message.flops) if message.flops > 0 else -math.inf
        steps = f" of {message.plan.steps} steps" if message.HasField("plan") else ""
        lines = [f"contraction{steps}, {slices} slice{'' if slices == 1 else 's'}, "
                 f"10^{log10_flops:.2f} multiply-adds"]
        timing = message.timing
        parts = [("queued", timing.queue_seconds), ("planned", timing.planning_seconds),
                 ("compiled", timing.compile_seconds), ("received", timing.input_receive_seconds),
                 ("executed", self.execution_seconds or 0), ("sent", timing.result_send_seconds)]
        lines.append("  " + ", ".join(f"{name} {seconds_text(seconds)}"
                                      for name, seconds in parts if seconds > 0)
                     + f", in all {seconds_text(timing.request_seconds)}")
        rate = f", {message.gflops:.4g} GFLOP/s" if message.HasField("gflops") else ""
        lines.append(f"  memory {bytes_text(message.memory.measured_peak_bytes)} of "
                     f"{bytes_text(message.memory.planned_peak_bytes)} planned{rate}")
        for provider in message.providers:
            kernels = ", ".join(f"{use.name} x{use.steps}" for use in provider.kernels)
            lines.append(f"  {provider.provider}: {provider.slices} slices by {provider.workers} "
                         f"worker{'' if provider.workers == 1 else 's'}"
                         + (f"; {kernels}" if kernels else ""))
        return "\n".join(lines)
