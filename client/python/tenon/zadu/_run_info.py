"""The record of a run, under zadu's keys, out of the server's reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.scores import MeasurementReport, Scores
from tenon.v1 import measure_report_pb2, measurement_pb2, report_pb2, tensor_pb2
from tenon.zadu._config import ExecutionConfig

_KINDS = {"RANK_COMPARISONS": "rank_comparison_strategy",
          "NEIGHBOR_STATISTICS": "neighbor_statistics_strategy",
          "TOPOGRAPHIC_STATISTICS": "topographic_strategy"}
_KIND_NAMES = {"NEIGHBORS": "knn", "CONDENSED_DISTANCES": "condensed_pairs",
               "TOPOGRAPHIC_STATISTICS": "topographic_product_statistics"}
_SPACES = {"ORIGINAL": "orig", "PROJECTION": "emb", "PAIR": "pair"}


def _name(enumeration: Any, prefix: str, number: int) -> str:
    return enumeration.Name(number).removeprefix(prefix)


class RunInfo:
    """What is known of a runner's calls: its settings, and what the server planned."""

    def __init__(self, config: ExecutionConfig, provider: str, ids: Sequence[str],
                 accepted: measurement_pb2.MeasureAccepted) -> None:
        self._config, self._provider, self._ids = config, provider, ids
        self._accepted = accepted

    def _plan(self, resources: Sequence[measure_report_pb2.ResourceReport],
              working: dict[int, int]) -> dict[str, Any]:
        memory = self._accepted.memory
        strategies = dict.fromkeys(_KINDS.values())
        for resource in resources:
            key = _KINDS.get(_name(measure_report_pb2.ResourceKind, "RESOURCE_KIND_",
                                   resource.key.kind))
            if key is not None:
                strategies[key] = resource.algorithm or None
        strategy = _name(measure_report_pb2.PairStrategy, "PAIR_STRATEGY_", memory.pair_strategy)
        external = strategy == "EXTERNAL"
        return {
            "exact": True, "backend": self._provider, "device": self._provider,
            "dtype": self._config.resolved_dtype,
            "estimated_cache_bytes": memory.original_bytes + memory.per_projection_bytes,
            "planned_peak_bytes": self._accepted.planned_peak_bytes,
            "memory_budget_bytes": self._config.memory_budget_bytes,
            "metric_working_bytes": working,
            "pair_strategy": None if strategy == "UNSPECIFIED" else strategy.lower(),
            "pair_temporary_budget_bytes":
                self._config.temporary_budget_bytes if external else None,
            "pair_planned_temporary_bytes": memory.per_projection_temporary_bytes,
            **strategies, "snc_strategy": None,
        }

    def _measures(self, seconds: Sequence[measure_report_pb2.MeasureSeconds]) -> list[Any]:
        by_spec = {part.spec: part.seconds for part in seconds}
        return [{"id": name, "seconds": by_spec.get(number, 0.0)}
                for number, name in enumerate(self._ids)]

    def single(self, item: Scores) -> dict[str, Any]:
        """One projection's record."""
        info = item.run_info or measure_report_pb2.RunInfo()
        resources = [*self._accepted.original_resources, *info.resources]
        working = {part.spec: part.working_bytes for part in info.measures if part.working_bytes}
        return {
            **self._plan(resources, working),
            "resource_seconds": info.resource_seconds, "metric_seconds": info.metric_seconds,
            "total_seconds": info.resource_seconds + info.metric_seconds,
            "provider_timings": _provider_timings(info.timing),
            "resources": [self._resource(resource) for resource in resources],
            "metrics": self._measures(info.measures),
        }

    def _resource(self, message: measure_report_pb2.ResourceReport) -> dict[str, Any]:
        key, details = message.key, message.WhichOneof("details")
        kind = _name(measure_report_pb2.ResourceKind, "RESOURCE_KIND_", key.kind)
        space = _name(measure_report_pb2.ResourceSpace, "RESOURCE_SPACE_", key.space)
        consumers = list(message.consumers)
        original = space == "ORIGINAL"
        return {
            "kind": _KIND_NAMES.get(kind, kind.lower()), "space": _SPACES.get(space, ""),
            "k": key.k if key.HasField("k") else None,
            "parameter": key.sigma if key.HasField("sigma") else None,
            "provider": message.provider.actual,
            "dtype": _name(tensor_pb2.DataType, "DATA_TYPE_", message.dtype).lower(),
            "bytes": message.size_bytes, "build_seconds": message.build_seconds,
            # What belongs to the data set was built when the runner was made.
            "built_in_run": not original, "reused": original, "released": message.released,
            "details": {"algorithm": message.algorithm, "block_rows": message.block_rows,
                        "block_count": message.block_count,
                        "working_bytes": message.working_bytes,
                        **(_fields(getattr(message, details)) if details else {})},
            "consumer_count": len(consumers),
            "consumers": [self._ids[number] for number in consumers if number < len(self._ids)],
            "first_consumer": min(consumers, default=None),
            "last_consumer": max(consumers, default=None),
        }

    def collection(self, mode: str, report: MeasurementReport, *, count: int, consumed: int,
                   runs: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The record of a list ("many") or of a stream ("many_stream")."""
        memory, granted = self._accepted.memory, self._accepted.granted
        workers = report.max_in_flight_observed
        info = {
            **self._plan([*report.original_resources, *self._accepted.projection_resources], {}),
            "mode": mode,
            "batch_strategy": "threaded_shared_original" if workers > 1
                              else "sequential_shared_original",
            "requested_workers": self._config.embedding_workers, "effective_workers": workers,
            "worker_limit_reason": _limit(memory.in_flight_limit),
            "native_threads_per_worker": None,
            "provider_batching": report.max_batch_observed > 1,
            "native_batch_size": report.max_batch_observed,
            "per_embedding_temporary_bytes": memory.per_projection_temporary_bytes,
            "planned_temporary_bytes": self._accepted.planned_temporary_bytes,
            "temporary_budget_bytes": self._config.temporary_budget_bytes,
            "embedding_count": count,
            "per_embedding_planned_peak_bytes": memory.per_projection_bytes,
            "shared_original_bytes": memory.original_bytes,
            "per_embedding_peak_bytes": memory.per_projection_bytes,
            "original_resource_count": len(report.original_resources),
            "original_resource_bytes": report.original_resource_bytes,
            "original_resource_seconds": report.original_resource_seconds,
            "original_resources_reused": report.original_resources_reused,
            "original_resource_reuse_events": len(report.original_resources) * count,
            "resource_seconds": report.resource_seconds, "metric_seconds": report.metric_seconds,
            "total_seconds": report.timing.request_seconds,
            "provider_timings": _provider_timings(report.timing),
            "metrics": self._measures(report.message.measures), "threads": granted.threads,
        }
        if runs is not None:
            return {**info, "runs": [{"embedding_index": index, **run}
                                     for index, run in enumerate(runs)]}
        return {**info, "input_consumed_count": consumed, "stream_complete": report.complete,
                "runs_retained": False, "max_in_flight_observed": workers}


def _provider_timings(timing: report_pb2.Timing) -> dict[str, float]:
    return {"input_transfer_seconds": timing.to_device_seconds,
            "compile_and_first_execution_seconds": timing.cold_init_seconds,
            "warm_execution_seconds": timing.execution_seconds,
            "output_transfer_seconds": timing.from_device_seconds}


def _limit(number: int) -> str | None:
    name = _name(measure_report_pb2.InFlightLimit, "IN_FLIGHT_LIMIT_", number)
    return None if name in ("UNSPECIFIED", "REQUEST") else name.lower()


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: value if isinstance(value, (int, float, str)) else list(value)
            for field, value in message.ListFields()}
