"""Keyword options of contractions and plans, and where they go in the messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenon import plans
from tenon._sizes import parse_bytes
from tenon.errors import InvalidRequest
from tenon.v1 import contraction_pb2, execution_pb2, plan_pb2

_SEARCH_FIELDS = {"max_time": "max_time_seconds", "max_trials": "max_trials", "seed": "seed",
                  "target_size": "target_size", "allow_output_slicing": "allow_output_slicing",
                  "search_threads": "threads"}
SEARCH_NAMES = (*_SEARCH_FIELDS, "minimize", "cache", "methods", "slicing")


def fill_execution(options: dict[str, Any], execution: contraction_pb2.ContractExecution) -> None:
    providers = options.pop("providers", None)
    if providers is not None:
        execution.providers.extend([providers] if isinstance(providers, str) else providers)
    budget = options.pop("memory_budget", None)
    if budget is not None:
        execution.memory_budget_bytes = parse_bytes(budget)
    for name in ("threads", "deterministic", "normalize"):
        value = options.pop(name, None)
        if value is not None:
            _set(execution, name, value)
    execution.required_fingerprint = options.pop("fingerprint", None) or ""
    priority = options.pop("priority", None)
    if priority is not None:
        execution.priority = _named(execution_pb2.PriorityClass, "PRIORITY_CLASS_", priority,
                                    "execution.priority")


def fill_plan(options: dict[str, Any], header: contraction_pb2.ContractHeader,
              texts: Mapping[Any, str]) -> None:
    """The path, the plan or the search; `texts`: the wire's names of indices."""
    plan, path = options.pop("plan", None), options.pop("path", None)
    sliced, ssa = options.pop("sliced", None) or (), options.pop("ssa", False)
    if plan is not None and path is not None:
        raise InvalidRequest("a plan and a path are given; one of them is enough", field="plan")
    if plan is not None:
        header.path.CopyFrom(plan.explicit())
    elif path is not None:
        header.path.CopyFrom(plans.explicit_plan(path, sliced, ssa=ssa, texts=texts))
    elif sliced:
        raise InvalidRequest("slices need a path", field="sliced")
    elif any(options.get(name) is not None for name in SEARCH_NAMES):
        fill_search(options, header.search)


def fill_search(options: dict[str, Any], search: plan_pb2.SearchOptions) -> None:
    given = {name: options.pop(name) for name in SEARCH_NAMES if name in options}
    given = {name: value for name, value in given.items() if value is not None}
    for name, field in _SEARCH_FIELDS.items():
        if name in given:
            _set(search, field, given[name])
    if "minimize" in given:
        plans.objective(given["minimize"], search)
    if "cache" in given:
        search.cache = _named(plan_pb2.PlanCachePolicy, "PLAN_CACHE_POLICY_", given["cache"],
                              "search.cache")
    for name in given.get("methods", ()):
        search.methods.append(_named(plan_pb2.SearchMethod, "SEARCH_METHOD_", name,
                                     "search.methods"))
    if "slicing" in given:
        search.slicing_mode = _named(plan_pb2.SlicingMode, "SLICING_MODE_", given["slicing"],
                                     "search.slicing_mode")


def take_search(options: dict[str, Any]) -> dict[str, Any]:
    """Removes what concerns the search for a plan, and returns it."""
    return {name: options.pop(name) for name in SEARCH_NAMES if name in options}


def refuse_unknown(options: Mapping[str, Any]) -> None:
    if options:
        raise TypeError("unknown option" + ("s " if len(options) > 1 else " ")
                        + ", ".join(sorted(options)))


def _set(message: Any, field: str, value: Any) -> None:
    try:
        setattr(message, field, value)
    except (TypeError, ValueError):
        raise InvalidRequest(f"{value!r} does not fit {field}", reason="BAD_PARAMETER",
                             field=field) from None


def _named(enum: Any, prefix: str, name: Any, field: str) -> int:
    known = {text.removeprefix(prefix).lower(): number for text, number in enum.items()
             if number != 0}
    try:
        return known[str(name).lower().replace("-", "_")]
    except KeyError:
        raise InvalidRequest(f"'{name}' is not known; expected is one of " + ", ".join(known),
                             reason="BAD_PARAMETER", field=field) from None
