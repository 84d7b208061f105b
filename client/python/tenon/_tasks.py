"""What `contract` and its relatives have to do: ask the server for the value, or only for the plan
and compute with a library of the client. The same for synchronous and asyncio's clients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tenon import _backends, _fields, _options, _questions, _quimb, _trees
from tenon._contraction import Question
from tenon._networks import Network
from tenon.errors import InvalidRequest
from tenon.plans import Plan
from tenon.v1 import contraction_pb2

_PATH_NAMES = ("plan", "path", "sliced", "ssa", "optimize")
_LOCAL_NAMES = (*_PATH_NAMES, *_options.SEARCH_NAMES, "memory_budget", "return_info", "timeout")


@dataclasses.dataclass
class LocalTask:
    """A contraction that a library of the client computes, once the plan is there.

    Attributes:
      request: the question for a plan; or
      header: a given path, whose cost the server tells by an estimate.
    """

    execution: _backends.Execution
    network: Network
    asked: dict[str, Any]
    timeout: float
    request: contraction_pb2.PlanContractionRequest | None = None
    header: contraction_pb2.ContractHeader | None = None
    return_info: bool = False
    finish: Callable[[Any], Any] = lambda value: value

    def estimated(self, estimate: contraction_pb2.EstimateResponse) -> Plan:
        return Plan(estimate.plan, len(self.network.inputs), self.network.names,
                    estimate.planned_peak_bytes, network=self.network)

    def run(self, plan: Plan) -> Any:
        value, fields = self.execution.run(plan)
        value = self.finish(value)
        if not self.return_info:
            return value
        return value, {**_fields.plan_fields(plan.summary, _fields.legs(plan), self.asked),
                       **fields, **_fields.type_fields(plan.summary, self.execution.dtype)}


Task = Question | LocalTask


def contract(inputs: Any, output: Sequence[Hashable] | None,
             size_dict: Mapping[Hashable, int] | None, arrays: Sequence[Any] | None,
             options: dict[str, Any], *, timeout: float) -> Task:
    """`Client.contract`: a network of names and arrays, or one of quimb."""
    if _quimb.is_network(inputs):
        if size_dict is not None or arrays is not None:
            raise InvalidRequest("a quimb network brings its own sizes and arrays", field="arrays")
        output_inds = options.pop("output_inds", None)
        call = _quimb.NetworkCall(inputs, output if output is not None else output_inds, options)
        return _task(call.network, call.arrays, options, timeout, call.finish)
    if arrays is None:
        raise InvalidRequest("the arrays are missing", field="arrays")
    return _task(_questions.network_of(inputs, output, size_dict), arrays, options, timeout)


def contract_tree(tree: Any, arrays: Sequence[Any], options: dict[str, Any], *,
                  timeout: float) -> Task:
    """`Client.contract_tree`."""
    for name in _PATH_NAMES:
        if name in options:
            raise InvalidRequest(f"a tree has its path; {name} is not taken", field=name)
    call = _trees.TreeCall(tree, arrays)
    return _task(call.network, call.arrays, {**options, **call.options}, timeout)


def _task(network: Network, arrays: Sequence[Any], options: dict[str, Any], timeout: float,
          finish: Callable[[Any], Any] | None = None) -> Task:
    backend = options.pop("backend", None)
    if not _backends.is_native(backend):
        return _local(backend, network, arrays, options, timeout, finish)
    return _questions.contraction(network, arrays, options, timeout=timeout,
                                  return_info=options.pop("return_info", False), finish=finish)


def _local(backend: str, network: Network, arrays: Sequence[Any], options: dict[str, Any],
           timeout: float, finish: Callable[[Any], Any] | None = None) -> LocalTask:
    """Everything that can be refused is, before the server is asked."""
    _options.refuse_unknown({name: value for name, value in options.items()
                             if name not in _LOCAL_NAMES})
    execution = _backends.Execution(backend, network, arrays)
    network = Network(network.inputs, network.output, execution.sizes)
    asked = {name: options[name] for name in _options.SEARCH_NAMES if name in options}
    task = LocalTask(execution, network, asked, options.pop("timeout", None) or timeout,
                     return_info=options.pop("return_info", False), finish=finish or (lambda v: v))
    if any(options.get(name) is not None for name in _PATH_NAMES):
        question = _questions.sets(network, [execution.dtype] * len(network.inputs), {}, options)
        task.header = question.header
        task.header.result.ClearField("report_detail")  # brief ones have no path
    else:
        task.request = _questions.plan_request(network, execution.dtype, options)
    return task
