"""Exact tensor contraction and measures of projections, by a Tenon server.

    import tenon
    c = tenon.einsum("ab,bc->ac", a, b)

The functions use the server at TENON_SERVER, or start a private one; `Client` takes one's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from tenon import measures, metrics
from tenon._measurement import MeasureStream
from tenon.client import Client, default_client, parse_bytes, set_default_client
from tenon.datasets import Dataset
from tenon.errors import (Cancelled, DeadlineExceeded, ExceedsBudget, InvalidRequest, NotFound,
                          NotPermitted, Refused, TenonError, Unavailable, Unsupported)
from tenon.expressions import ContractExpression
from tenon.measure_ids import MEASURE
from tenon.plans import Plan
from tenon.reports import ContractionReport
from tenon.scores import MeasurementReport, Scores
from tenon.zadu import (ZADU, EmbeddingExecutionError, EmbeddingResult, ExecutionConfig, MeasureId,
                        Spec, make_spec)

__all__ = ["Cancelled", "Client", "ContractExpression", "ContractionReport", "Dataset",
           "DeadlineExceeded", "EmbeddingExecutionError", "EmbeddingResult", "ExceedsBudget",
           "ExecutionConfig", "InvalidRequest", "MEASURE", "MeasureId", "MeasurementReport",
           "NotFound", "NotPermitted", "Plan", "Refused", "Scores", "Spec", "TenonError",
           "Unavailable", "Unsupported", "ZADU", "connect", "contract", "default_client", "einsum",
           "make_spec", "measure", "measures", "metrics", "parse_bytes", "plan",
           "set_default_client",
           # of opt_einsum, cotengra and quimb
           "Optimizer", "aio", "contract_expression", "contract_many", "contract_tree", "tree"]


def connect(address: str | None = None, **options: Any) -> Client:
    """A `Client` with this address and these options; see there."""
    return Client(address, **options)


def einsum(subscripts: str, *operands: Any, **options: Any) -> Any:
    """`Client.einsum` of the default client, with its subscripts, operands and options."""
    return default_client().einsum(subscripts, *operands, **options)


def contract(*arguments: Any, **options: Any) -> Any:
    """`Client.contract` of the default client, with its arguments and options."""
    return default_client().contract(*arguments, **options)


def plan(*arguments: Any, **options: Any) -> Plan:
    """`Client.plan` of the default client, with its arguments and options."""
    return default_client().plan(*arguments, **options)


def contract_expression(*arguments: Any, **options: Any) -> ContractExpression:
    """`Client.contract_expression` of the default client, with its arguments and options."""
    return default_client().contract_expression(*arguments, **options)


def contract_many(*arguments: Any, **options: Any) -> Iterator[Any]:
    """`Client.contract_many` of the default client, with its arguments and options."""
    return default_client().contract_many(*arguments, **options)


def contract_tree(tree: Any, arrays: Any, **options: Any) -> Any:
    """`Client.contract_tree` of the default client: a tree, arrays, and options."""
    return default_client().contract_tree(tree, arrays, **options)


def tree(*arguments: Any, **options: Any) -> Any:
    """`Client.tree` of the default client, with its arguments and options."""
    return default_client().tree(*arguments, **options)


def measure(*arguments: Any, **options: Any) -> MeasureStream:
    """`Client.measure` of the default client, with its arguments and options."""
    return default_client().measure(*arguments, **options)



def __getattr__(name: str) -> Any:
    """What is loaded when it is first used: opt_einsum's base class, and asyncio's client."""
    if name == "Optimizer":
        from tenon.optimizer import Optimizer

        return Optimizer
    if name == "aio":
        return importlib.import_module("tenon.aio")
    raise AttributeError(f"module 'tenon' has no attribute '{name}'")
