"""The header of a Measure call, and what has to follow it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon import _arrays, _labels, _sizes
from tenon._measure_specs import short_names
from tenon.datasets import Dataset, data_array
from tenon.errors import InvalidRequest
from tenon.v1 import execution_pb2, measure_spec_pb2, measurement_pb2

_RNGS = ("counter", "numpy")


@dataclasses.dataclass
class Opening:
    """The first frame, and the frames that complete it before projections may come."""

    header: measurement_pb2.MeasureHeader
    dataset: np.ndarray | None = None  # whose bytes follow
    labels: Sequence[measurement_pb2.Labels] = ()


def build(data: Any, specs: Sequence[measure_spec_pb2.MeasureSpec], labels: Any,
          options: Mapping[str, Any]) -> Opening:
    """Checks the options and fills a header.

    Args:
      data: a matrix, a kept `Dataset`, or the handle of one.
      labels: one per row, or None.
      options: those of `Client.measure`, without what concerns the client alone.
    """
    opening = Opening(measurement_pb2.MeasureHeader(specs=specs))
    options = dict(options)
    _add_dataset(opening, data, options.pop("keep", False))
    if labels is not None:
        parts = _labels.to_wire(labels)
        if len(parts) == 1:
            opening.header.labels.CopyFrom(parts[0])
        else:
            opening.header.labels_follow = True
            opening.labels = parts
    opening.header.return_local = bool(options.pop("return_local", False))
    files, limit = options.pop("server_files", None), options.pop("limit", None)
    if files is not None:
        opening.header.server_files.glob = files
        if limit is not None:
            opening.header.server_files.limit = limit
    else:
        opening.header.client_stream.SetInParent()
        expected = options.pop("expected", None)
        if expected is not None:
            opening.header.client_stream.expected_projections = expected
    _add_execution(opening.header.execution, options)
    if options:
        raise TypeError("unknown option" + ("s " if len(options) > 1 else " ")
                        + ", ".join(sorted(options)))
    return opening


def _add_dataset(opening: Opening, data: Any, keep: bool) -> None:
    if isinstance(data, (str, Dataset)):
        opening.header.dataset_handle = data.handle if isinstance(data, Dataset) else data
        return
    array = data_array(data)
    target = opening.header.dataset_input
    target.spec.CopyFrom(_arrays.spec_of(array))
    target.keep = keep
    if array.nbytes < _arrays.INLINE_BYTES:
        target.inline_data = array.tobytes()
    else:
        opening.dataset = array


def _add_execution(execution: measurement_pb2.MeasureExecution, options: dict[str, Any]) -> None:
    execution.provider = _one_provider(options.pop("providers", None))
    dtype = options.pop("dtype", None)
    if dtype is not None:
        execution.compute_dtype = _arrays.wire_type(dtype)
    for name, target in (("memory_budget", "memory_budget_bytes"),
                         ("temporary_budget", "temporary_budget_bytes")):
        size = options.pop(name, None)
        if size is not None:
            setattr(execution, target, _sizes.parse_bytes(size, name))
    for name, target in _PLAIN.items():
        value = options.pop(name, None)
        if value is not None:
            setattr(execution, target, value)
    for name, descriptor, target in _ENUMERATED:
        value = options.pop(name, None)
        if value is not None:
            setattr(execution, target, _number(descriptor, value, name))


_PLAIN = {"allow_fallback": "allow_fallback", "temporary_directory": "temporary_directory",
          "in_flight": "in_flight", "threads": "threads", "geodesic": "geodesic",
          "batch": "batch_size", "progress_interval": "progress_interval_seconds",
          "keep_resources": "keep_resources", "max_queue": "max_queue_seconds"}
_ENUMERATED = (
    ("pair_order", measurement_pb2.PairOrderStrategy.DESCRIPTOR, "pair_order_strategy"),
    ("on_error", measurement_pb2.OnError.DESCRIPTOR, "on_error"),
    ("priority", execution_pb2.PriorityClass.DESCRIPTOR, "priority"),
)


def _number(descriptor: Any, value: str, name: str) -> int:
    names = short_names(descriptor)
    if value not in names:
        raise InvalidRequest(f"'{value}' is not one of " + ", ".join(names),
                             reason="BAD_PARAMETER", field=name)
    return names[value]


def _one_provider(providers: str | Sequence[str] | None) -> str:
    if providers is None or isinstance(providers, str):
        return providers or ""
    if len(providers) != 1:
        raise InvalidRequest("a measurement runs on one provider", reason="BAD_PARAMETER",
                             field="providers")
    return providers[0]


def check_rng(rng: str) -> str:
    if rng not in _RNGS:
        raise InvalidRequest(f"'{rng}' is not one of " + ", ".join(_RNGS), reason="BAD_PARAMETER",
                             field="rng")
    return rng
