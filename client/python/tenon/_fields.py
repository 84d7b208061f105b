"""Reports under the names that ArcTN's users know, as flat dictionaries.

Sizes are elements, logarithms as named, seconds wall-clock seconds. What this service has no
counterpart for (``preset``, ``rate_enabled``) is None or False.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from tenon import _trees
from tenon.plans import Plan
from tenon.v1 import contraction_pb2, plan_pb2, report_pb2

SYNCHRONOUS = "synchronous_host_wall"
DEVICE_EVENTS = "device_events"
UNVERIFIED = "external_backend_completion_not_verified"

_SCOPES = {report_pb2.TIMING_SCOPE_SYNCHRONOUS_HOST: SYNCHRONOUS,
           report_pb2.TIMING_SCOPE_DEVICE_EVENTS: DEVICE_EVENTS}
_OBJECTIVES = {plan_pb2.SEARCH_OBJECTIVE_FLOPS: "total_flops",
               plan_pb2.SEARCH_OBJECTIVE_READ_WRITE: "total_read_write",
               plan_pb2.SEARCH_OBJECTIVE_WEIGHTED: "flops_read_write",
               plan_pb2.SEARCH_OBJECTIVE_LARGEST_INTERMEDIATE: "largest_intermediate",
               plan_pb2.SEARCH_OBJECTIVE_SECONDS: "seconds"}
_SLICING = {plan_pb2.SLICING_MODE_NONE: "none", plan_pb2.SLICING_MODE_FIXED_TREE: "fixed",
            plan_pb2.SLICING_MODE_DYNAMIC: "dynamic", plan_pb2.SLICING_MODE_ANNEALED: "annealed"}


def plan_fields(summary: plan_pb2.PlanSummary, sliced_legs: list[int],
                asked: Mapping[str, Any]) -> dict[str, Any]:
    """Path, slices and their cost; `asked`: the options of the search."""
    provenance = summary.provenance
    target = asked.get("target_size")
    target_log2 = math.log2(target) if target else None
    return {
        "path": [tuple(step.operands) for step in summary.path.steps],
        "path_format": "ssa-v1",
        "preset": None,
        "seed": provenance.seed if provenance.HasField("seed") else None,
        "max_time": asked.get("max_time"),
        "rate_enabled": False,
        "slicing_mode": _SLICING.get(provenance.slicing_mode),
        "allow_output_slicing": bool(asked.get("allow_output_slicing")),
        "wall_s": provenance.search_seconds,
        **_cost_fields(summary),
        "planner_objective": _OBJECTIVES.get(provenance.objective),
        "flops_weight": provenance.flops_weight,
        "read_write_weight": provenance.read_write_weight,
        "sliced": target is not None or bool(sliced_legs),
        "sliced_legs": sliced_legs,
        "target_size": target,
        "target_log2_size": target_log2,
        "memory_target_log2_elements": target_log2,
        "memory_constraint_metric": "max_intermediate_elements_per_slice",
        "max_intermediate_log2_elements_per_slice": (
            summary.per_slice.log2_largest_intermediate if target is not None else None),
    }


def _cost_fields(summary: plan_pb2.PlanSummary) -> dict[str, Any]:
    whole, part, total = summary.unsliced, summary.per_slice, summary.total
    return {
        "log10_flops": whole.log10_flops,
        "log2_max_size": whole.log2_largest_intermediate,
        "log2_max_contraction_size": whole.log2_largest_step,
        "log2_total_size": whole.log2_writes,
        "log2_read_write": whole.log2_read_write,
        "log2_peak_size": whole.log2_peak,
        "planner_objective_score_log2": total.log2_score,
        "planner_log2_read_write": total.log2_read_write,
        "planner_log2_total_writes": total.log2_writes,
        "log2_n_slices": summary.log2_slices,
        "sliced_log10_flops_total": total.log10_flops,
        "sliced_log2_max_size": part.log2_largest_intermediate,
        "sliced_log2_max_contraction_size": part.log2_largest_step,
        "sliced_log2_peak_size": part.log2_peak,
    }


def legs(plan: Plan) -> list[int]:
    """The sliced indices as numbers in order of first appearance."""
    assert plan.network is not None
    order = {name: number for number, name in enumerate(plan.network.texts)}
    return [order[name] for name in plan.sliced]


def tree_fields(plan: Plan, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a plan, and what its tree calls each index."""
    assert plan.network is not None
    letters = _trees.names(plan.network)
    return {**plan_fields(plan.summary, legs(plan), asked), "symbol_of": letters,
            "sliced_inds": [letters[name] for name in plan.sliced]}


def type_fields(summary: plan_pb2.PlanSummary, dtype: str) -> dict[str, Any]:
    """The largest step in bytes: both operands and the result."""
    itemsize = np.dtype(dtype).itemsize
    fields: dict[str, Any] = {
        "dtype": dtype, "dtype_itemsize": itemsize,
        "contraction_memory_estimate_metric": "logical_two_inputs_plus_output_bytes"}
    for prefix, cost in (("", summary.unsliced), ("sliced_", summary.per_slice)):
        elements = cost.log2_largest_step
        representable = summary.steps > 0 and 0 <= elements < 62
        fields[f"{prefix}log2_max_contraction_bytes"] = (
            elements + math.log2(itemsize) if summary.steps > 0 else None)
        fields[f"{prefix}estimated_max_contraction_bytes"] = (
            round(2**elements) * itemsize if representable else None)
    return fields


def execution_fields(backend: str, implementation: str, *, prepare: float, compiled: float | None,
                     setup: float, dispatch: float, wall: float | None,
                     scope: str) -> dict[str, Any]:
    return {
        "execution_backend": backend,
        "execution_implementation": implementation,
        "execution_input_prepare_wall_s": prepare,
        "expression_compile_wall_s": compiled,
        "execution_setup_wall_s": setup,
        "execution_dispatch_wall_s": dispatch,
        "execution_wall_s": wall,
        "execution_total_host_wall_s": prepare + setup + dispatch,
        "execution_timing_scope": scope,
    }


def report_fields(report: contraction_pb2.ContractionReport, names: Mapping[str, Hashable],
                  dtype: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """All of them, of a contraction that the server has run."""
    order = {text: number for number, text in enumerate(names)}
    timing = report.timing
    setup = timing.setup_seconds
    wall = (setup + timing.dispatch_seconds
            if timing.timing_scope == report_pb2.TIMING_SCOPE_SYNCHRONOUS_HOST else
            timing.execution_seconds if timing.HasField("execution_seconds") else None)
    return {
        **plan_fields(report.plan, [order[text] for text in report.plan.sliced_indices], asked),
        **execution_fields("native", "tenond", prepare=timing.input_prepare_seconds, compiled=None,
                           setup=setup, dispatch=timing.dispatch_seconds, wall=wall,
                           scope=_SCOPES.get(timing.timing_scope, UNVERIFIED)),
        **type_fields(report.plan, dtype),
    }
