"""Specifications of measures, as zadu takes them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from tenon._measure_specs import parameter_names, to_wire
from tenon.errors import InvalidRequest
from tenon.measure_ids import MEASURE, full_id

MeasureId = MEASURE

DEFAULT_K = 20
NEEDS_LABELS = {"neighborhood_hit", "class_aware_trustworthiness_continuity",
                "label_trustworthiness_and_continuity", "distance_consistency",
                "internal_validation_measure", "clustering_and_external_validation_measure",
                "class_angular_distortion_index"}
DENSITIES = {"distance_to_measure", "kl_divergence"}
# Parameters that are looked at when a runner is made; the others when it measures.
_EARLY = {"k", "sigma", "iteration", "walk_num_ratio", "alpha", "n_jobs"}
_FIXED_K = {"trustworthiness_continuity", "mean_relative_rank_error", "procrustes",
            "local_continuity_meta_criteria", "neighborhood_hit", "neighbor_dissimilarity",
            "class_aware_trustworthiness_continuity", "topographic_product"}
_HALF_K = {"trustworthiness_continuity", "class_aware_trustworthiness_continuity"}
# What is built from the data set alone, for measures without labels.
_ORIGINAL = {measure.value for measure in MEASURE} - NEEDS_LABELS - {"gap_index", "procrustes"}


class Spec(TypedDict, total=False):
    """One measure: its id or alias, and its parameters."""

    id: str | MEASURE
    params: dict[str, Any]


def make_spec(id: str | MEASURE, **params: Any) -> Spec:
    """``{"id": id, "params": params}``, with the id as a plain text."""
    return {"id": id.value if isinstance(id, MEASURE) else id, "params": params}


def checked_specs(spec_list: Any, rows: int) -> list[Spec]:
    """A deep copy with full ids, and with everything checked that needs no projection.

    Raises:
      TypeError: not a sequence of dicts; values of the wrong type.
      InvalidRequest: a ValueError; unknown measures and parameters, values out of range.
    """
    if isinstance(spec_list, (str, bytes)) or not isinstance(spec_list, Sequence):
        raise TypeError("spec_list is a sequence of dicts, not " + type(spec_list).__name__)
    return [_checked(spec, number, rows) for number, spec in enumerate(copy.deepcopy(spec_list))]


def _checked(spec: Any, number: int, rows: int) -> Spec:
    where = f"spec_list[{number}]"
    if not isinstance(spec, dict):
        raise TypeError(f"{where} is a dict, not {type(spec).__name__}")
    if "id" not in spec:
        raise InvalidRequest(f"{where} has no 'id'", reason="MISSING_FIELD", field=where)
    name, params = full_id(spec["id"], where + ".id"), spec.get("params")
    params = {} if params is None else params
    if not isinstance(params, dict):
        raise TypeError(f"{where}: params is a dict, not {type(params).__name__}")
    unknown = sorted(params.keys() - parameter_names(name))
    if unknown:
        raise InvalidRequest(f"{name} has no parameter " + ", ".join(unknown),
                             reason="BAD_PARAMETER", field=where)
    to_wire([(name, _early(params))], "counter", _no_matrix)  # for the types
    _check_values(name, params, rows, where)
    return {**spec, "id": name, "params": params}  # type: ignore[return-value]


def early_specs(specs: Sequence[Spec]) -> list[tuple[str, dict[str, Any]]]:
    """Those that need something of the data set alone, with the parameters that count for it."""
    return [(spec["id"], _early(spec["params"])) for spec in specs if spec["id"] in _ORIGINAL]


def _early(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key in _EARLY}


def _no_matrix(_: Any) -> str:
    raise AssertionError("metric is no early parameter")


def _check_values(name: str, params: Mapping[str, Any], rows: int, where: str) -> None:
    k = params.get("k")
    if k is None and name in _FIXED_K:
        k = DEFAULT_K
    if k is not None:
        needed = "1 <= k and 2k < n" if name in _HALF_K else "1 <= k < n"
        if not 1 <= k < (rows / 2 if name in _HALF_K else rows):
            raise InvalidRequest(f"{name}: k = {k} with n = {rows} rows, needed is {needed}",
                                 reason="K_OUT_OF_RANGE", field=where + ".k")
    for key in ("sigma", "walk_num_ratio", "alpha"):
        value = params.get(key)
        if value is not None and not 0 < value < float("inf"):
            raise InvalidRequest(f"{name}: {key} = {value}, needed is a finite number above 0",
                                 reason="BAD_PARAMETER", field=f"{where}.{key}")
    for key in ("iteration", "n_jobs"):
        value = params.get(key)
        if value is not None and value < 1:
            raise InvalidRequest(f"{name}: {key} = {value}, needed is at least 1",
                                 reason="BAD_PARAMETER", field=f"{where}.{key}")
