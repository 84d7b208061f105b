"""From the arguments of a contraction to the call that asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from tenon import _arrays, _contraction, _networks, _optimize, _options
from tenon._contraction import Question, Result
from tenon._detail import fill_detail
from tenon._networks import Network
from tenon.errors import InvalidRequest
from tenon.plans import Plan
from tenon.v1 import contraction_pb2, execution_pb2

_PROGRESS_SECONDS = 0.2


def einsum(subscripts: str, operands: Sequence[Any], options: dict[str, Any], *, timeout: float,
           return_info: bool = False) -> Question:
    """A call in the form of an einsum text, which the server parses."""
    if not isinstance(subscripts, str):
        raise InvalidRequest("the first argument is the einsum text, for example 'ab,bc->ac'",
                             reason="BAD_EXPRESSION", field="einsum.subscripts")
    arrays = _contraction.prepare(operands)
    header = contraction_pb2.ContractHeader()
    header.einsum.subscripts = subscripts
    for _ in arrays:
        header.einsum.operands.add()
    question = Question(header, list(arrays), _contraction.add_operands(arrays,
                                                                        header.einsum.operands))
    network = None
    if return_info or options.get("optimize") is not None:
        network = Network(*_networks.parse(subscripts))
    return complete(question, network, options, timeout=timeout, return_info=return_info)


def contraction(network: Network, arrays: Sequence[Any], options: dict[str, Any], *, timeout: float,
                return_info: bool = False, finish: Callable[[Any], Any] | None = None) -> Question:
    """A call with named indices. `finish` is given the array, or array and exponent."""
    prepared = _contraction.prepare(arrays)
    header = contraction_pb2.ContractHeader(network=network.wire())
    question = Question(header, list(prepared),
                        _contraction.add_operands(prepared, header.network.operands))
    return complete(question, network, options, timeout=timeout, return_info=return_info,
                    finish=finish)


def sets(network: Network, dtypes: Sequence[Any], constants: dict[int, np.ndarray],
         options: dict[str, Any], *, timeout: float | None = None,
         expected: int | None = None) -> Question:
    """A call of many sets: all operands vary but `constants`, which go up once."""
    sizes = network.sizes()
    header = contraction_pb2.ContractHeader(network=network.wire(), expected_sets=expected)
    arrays = [constants.get(number) for number in range(len(network.inputs))]
    question = Question(header, arrays, _contraction.add_operands(arrays, header.network.operands))
    question.varying = [number for number in range(len(arrays)) if number not in constants]
    for number, dtype in zip(question.varying, dtypes, strict=True):
        operand = header.network.operands[number]
        operand.varying = True
        operand.spec.dtype = _arrays.wire_type(dtype)
        operand.spec.shape.extend(sizes[name] for name in network.inputs[number])
    return complete(question, network, options, timeout=timeout)


def complete(question: Question, network: Network | None, options: dict[str, Any], *,
             timeout: float | None, return_info: bool = False,
             finish: Callable[[Any], Any] | None = None) -> Question:
    """Puts the options into the header. TypeError for those that nothing knows."""
    header = question.header
    question.timeout = options.pop("timeout", None) or timeout
    question.return_info = return_info
    if not return_info:
        header.result.report_detail = execution_pb2.REPORT_DETAIL_BRIEF
    fill_detail(options, header.result)
    question.asked = {name: options[name] for name in _options.SEARCH_NAMES if name in options}
    question.names = network.names if network is not None else {}
    question.on_progress = options.pop("on_progress", None)
    interval = options.pop("progress_interval", _PROGRESS_SECONDS)
    if question.on_progress is not None:
        header.execution.progress_interval_seconds = interval
    dtype = options.pop("dtype", None)
    if dtype is not None:
        header.result.dtype = _arrays.wire_type(dtype)
    if options.pop("strip_exponent", False):
        options["normalize"] = True
    _options.fill_execution(options, header.execution)
    optimize = options.pop("optimize", None)
    if optimize is not None and network is not None:
        options.update(resolve(optimize, network,
                               [operand.spec.shape for operand in _operands(header)]))
    _options.fill_plan(options, header, network.texts if network is not None else {})
    _options.refuse_unknown(options)
    question.finish = _finish(header.execution.normalize, finish)
    return question


def plan_request(network: Network, dtype: Any, options: dict[str, Any], *,
                 varying: Sequence[int] = ()) -> contraction_pb2.PlanContractionRequest:
    """A question for a plan; `varying`: the operands that every set will bring anew."""
    request = contraction_pb2.PlanContractionRequest(network=network.wire())
    for number in varying:
        request.network.operands[number].varying = True
    if dtype is not None:
        request.default_dtype = _arrays.wire_type(dtype)
    _options.fill_execution(options, request.execution)
    _options.fill_search(options, request.search)
    _options.refuse_unknown(options)
    return request


class PlanAnswer:
    """The frames of a search for a plan."""

    def __init__(self, network: Network,
                 on_improvement: Callable[[contraction_pb2.PlanImprovement], None] | None) -> None:
        self._network, self._on_improvement = network, on_improvement
        self._result: contraction_pb2.PlanResult | None = None

    def take(self, frame: contraction_pb2.PlanContractionResponse) -> None:
        if frame.HasField("improvement") and self._on_improvement is not None:
            self._on_improvement(frame.improvement)
        elif frame.HasField("plan"):
            self._result = frame.plan

    def plan(self) -> Plan:
        assert self._result is not None
        return Plan(self._result.plan, len(self._network.inputs), self._network.names,
                    self._result.planned_peak_bytes, network=self._network)


def resolve(optimize: Any, network: Network,
            shapes: Sequence[Sequence[int]] | None = None) -> dict[str, Any]:
    """Options of what opt_einsum and cotengra call `optimize`; see `_optimize`."""
    return _optimize.resolve(optimize, network.inputs, network.output, network.sizes(shapes))


def _operands(header: contraction_pb2.ContractHeader) -> Any:
    return getattr(header, header.WhichOneof("expression")).operands


def _finish(normalize: bool, finish: Callable[[Any], Any] | None) -> Callable[[Result], Any]:
    def value(result: Result) -> Any:
        found: Any = (result.array, result.log10_scale) if normalize else result.array
        return found if finish is None else finish(found)
    return value


def result_bytes(question: Question) -> int:
    """Bytes of one result; 0 where only the server can tell."""
    header = question.header
    try:
        if header.WhichOneof("expression") == "einsum":
            network = Network(*_networks.parse(header.einsum.subscripts))
        else:
            wire = header.network
            network = Network([tuple(operand.indices) for operand in wire.operands],
                              tuple(wire.output), dict(wire.index_sizes))
        specs = [operand.spec for operand in _operands(header)]
        shape = network.result_shape(network.sizes([spec.shape for spec in specs]))
        number = header.result.dtype or header.execution.accumulate_dtype
        dtype = (_arrays.numpy_type(number) if number else
                 np.result_type(*(_arrays.numpy_type(spec.dtype) for spec in specs)))
    except (InvalidRequest, KeyError, ValueError):
        return 0
    return math.prod(shape) * dtype.itemsize


def network_of(inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable] | None,
               sizes: Any) -> Network:
    """A `Network`, with errors for arguments that are none."""
    try:
        return Network(inputs, output, sizes)
    except TypeError as error:
        raise InvalidRequest(f"inputs and output are sequences of hashable names: {error}",
                             reason="BAD_EXPRESSION", field="inputs") from None
