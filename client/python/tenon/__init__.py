"""Exact tensor contraction and measures of projections, by a Tenon server.

    import tenon
    c = tenon.einsum("ab,bc->ac", a, b)

The functions use the server at TENON_SERVER, or start a private one; `Client` takes one's own.
"""

from __future__ import annotations

from typing import Any

from tenon import measures, metrics
from tenon._measurement import MeasureStream
from tenon.client import Client, default_client, parse_bytes, set_default_client
from tenon.datasets import Dataset
from tenon.errors import (Cancelled, DeadlineExceeded, ExceedsBudget, InvalidRequest, NotFound,
                          NotPermitted, Refused, TenonError, Unavailable, Unsupported)
from tenon.measure_ids import MEASURE
from tenon.plans import Plan
from tenon.reports import ContractionReport
from tenon.scores import MeasurementReport, Scores
from tenon.zadu import (ZADU, EmbeddingExecutionError, EmbeddingResult, ExecutionConfig, MeasureId,
                        Spec, make_spec)

__all__ = ["Cancelled", "Client", "ContractionReport", "Dataset", "DeadlineExceeded",
           "EmbeddingExecutionError", "EmbeddingResult", "ExceedsBudget", "ExecutionConfig",
           "InvalidRequest", "MEASURE", "MeasureId", "MeasurementReport", "NotFound",
           "NotPermitted", "Plan", "Refused", "Scores", "Spec", "TenonError", "Unavailable",
           "Unsupported", "ZADU", "connect", "contract", "default_client", "einsum", "make_spec",
           "measure", "measures", "metrics",
           "parse_bytes", "plan", "set_default_client"]


def connect(address: str | None = None, **options: Any) -> Client:
    """A `Client`; see there."""
    return Client(address, **options)


def einsum(subscripts: str, *operands: Any, **options: Any) -> Any:
    """`Client.einsum` of the default client."""
    return default_client().einsum(subscripts, *operands, **options)


def contract(*arguments: Any, **options: Any) -> Any:
    """`Client.contract` of the default client."""
    return default_client().contract(*arguments, **options)


def plan(*arguments: Any, **options: Any) -> Plan:
    """`Client.plan` of the default client."""
    return default_client().plan(*arguments, **options)


def measure(*arguments: Any, **options: Any) -> MeasureStream:
    """`Client.measure` of the default client."""
    return default_client().measure(*arguments, **options)
