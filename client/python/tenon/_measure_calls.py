"""Client.measure: from arguments to a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon import _measure_header, _measure_specs
from tenon._connection import Connection
from tenon._measurement import MeasureStream, OnProgress, named_projections
from tenon.datasets import Dataset, Datasets
from tenon.errors import InvalidRequest

_PROGRESS_SECONDS = 0.2


def start(connection: Connection, datasets: Datasets, data: Any, measures: Any, projections: Any,
          labels: Any, *, rng: str, on_error: str, on_progress: OnProgress | None, timeout: float | None,
          options: dict[str, Any]) -> MeasureStream:
    """See `Client.measure`."""
    if (projections is None) == (options.get("server_files") is None):
        raise InvalidRequest("either projections or server_files are needed", field="projections")
    specs = _measure_specs.to_wire(_measure_specs.normalise_all(measures),
                                   _measure_header.check_rng(rng), matrix_source(datasets, data))
    if on_progress is not None:
        options.setdefault("progress_interval", _PROGRESS_SECONDS)
    options["on_error"] = "stop" if on_error == "raise" else on_error
    opening = _measure_header.build(data, specs, labels, options)
    named = named_projections(projections) if projections is not None else None
    return MeasureStream(connection, opening, named, timeout=timeout,
                         raise_errors=on_error == "raise", on_progress=on_progress)


def matrix_source(datasets: Datasets, data: Any) -> _measure_specs.MatrixSource:
    """Puts the distances of all rows of `data` by a function on the server; returns the handle."""

    def put(function: Callable[[Any, Any], float]) -> str:
        if isinstance(data, (str, Dataset)):
            raise InvalidRequest("a function of rows needs the data set itself, not its handle",
                                 reason="BAD_PARAMETER", field="metric")
        return datasets.put(distance_matrix(np.asarray(data), function)).handle

    return put


def distance_matrix(data: np.ndarray, function: Callable[[Any, Any], float]) -> np.ndarray:
    """The distances of all pairs of rows, one call of the function a pair: n (n - 1) / 2 calls."""
    n = len(data)
    matrix = np.zeros((n, n))
    for row in range(n):
        for other in range(row + 1, n):
            matrix[row, other] = matrix[other, row] = function(data[row], data[other])
    return matrix
