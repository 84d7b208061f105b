"""A contraction with places for arrays: what a compiled expression knows, without its transport."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon import _backends, _contraction, _networks, _options, _questions
from tenon._contraction import Question
from tenon._networks import Network
from tenon.errors import InvalidRequest, TenonError, Unavailable, Unsupported
from tenon.plans import Plan
from tenon.v1 import contraction_pb2

_PLAN_NAMES = ("plan", "path", "sliced", "ssa", "optimize")
# The server ends streams that stand idle or do not read; the next call opens another.
_STALE_REASONS = ("SLOW_WRITER", "SLOW_READER")


class Spec:
    """Network, constants, plan and options of an expression. Thread-safe once the plan is there.

    Attributes:
      request: the question for the plan; None when the caller gave one.
      plan: the plan, put here by whoever asked the question.
    """

    def __init__(self, subscripts: Any, shapes: Sequence[Any], constants: Any,
                 output: Sequence[Hashable] | None, options: dict[str, Any]) -> None:
        inputs, output, shapes = _parse(subscripts, shapes, output)
        self.constants = _constants(constants, shapes)
        shapes = [self.constants[n].shape if n in self.constants else _shape(n, shape)
                  for n, shape in enumerate(shapes)]
        if len(shapes) != len(inputs):
            raise InvalidRequest(f"{len(inputs)} operands are named, {len(shapes)} shapes are "
                                 "given", reason="BAD_EXPRESSION", field="shapes")
        sizes = _questions.network_of(inputs, output, None).sizes(shapes)
        self.network = Network(inputs, output, sizes)
        self.shapes = [tuple(shape) for shape in shapes]
        self.varying = [n for n in range(len(shapes)) if n not in self.constants]
        if not self.varying:
            raise InvalidRequest("all operands are constant: this is einsum's work",
                                 field="constants")
        self.timeout: float | None = options.pop("timeout", None)
        self.plan: Plan | None = None
        self.request: contraction_pb2.PlanContractionRequest | None = None
        self._path: dict[str, Any] = {}
        self._options = options
        self._take_plan_options()
        # What the options are worth shows now, not at the first call.
        self.question([np.dtype(np.float64)] * len(self.varying), pinned=False)
        self._fingerprints: dict[tuple[Any, ...], str] = {}

    def _take_plan_options(self) -> None:
        options = self._options
        options.pop("use_blas", None)
        limit = options.pop("memory_limit", None)
        if limit is not None and limit != -1:
            options.setdefault("target_size", self._largest_tensor() if limit == "max_input"
                               else limit)
        given = {name: options.pop(name) for name in _PLAN_NAMES if name in options}
        if any(value is not None for value in given.values()):
            optimize = given.pop("optimize", None)
            self._path = {**given, **_questions.resolve(optimize, self.network)}
            self.plan = self._path.get("plan")
        search = _options.take_search(options)
        if any(name in self._path for name in ("plan", "path")):
            return
        search = {**search, **self._path}
        execution = {name: options[name] for name in ("memory_budget", "threads", "providers",
                                                      "normalize") if name in options}
        dtype = np.result_type(*self.constants.values()) if self.constants else None
        self._path = {}
        self.request = _questions.plan_request(self.network, dtype, {**search, **execution},
                                               varying=self.varying)

    def _largest_tensor(self) -> int:
        shapes = [*self.shapes, self.network.result_shape(self.network.sizes())]
        return max(math.prod(shape) for shape in shapes)

    def question(self, dtypes: Sequence[np.dtype], *, pinned: bool = True,
                 expected: int | None = None) -> Question:
        """A call of many sets of these element types, along the plan. `pinned`: with the program of
        the calls before it, or not at all."""
        options = {**self._options, **(self._path if self.plan is None else {"plan": self.plan})}
        if pinned and expected is None:
            options.setdefault("fingerprint", self._fingerprints.get(tuple(dtypes)))
        return _questions.sets(self.network, dtypes, self.constants, options, expected=expected)

    def pin(self, dtypes: Sequence[np.dtype], accepted: contraction_pb2.ContractAccepted) -> None:
        """From now on these element types are computed by this program, or refused."""
        self._fingerprints.setdefault(tuple(dtypes), accepted.plan.program_fingerprint)

    def prepare(self, arrays: Sequence[Any],
                dtypes: Sequence[np.dtype] | None = None) -> list[np.ndarray]:
        """One set as host arrays; with `dtypes` of these element types.

        Raises:
          InvalidRequest: too many or too few arrays, other shapes, or types that do not fit.
        """
        self._check_count(arrays)
        prepared = _contraction.prepare(arrays)
        for place, (number, array) in enumerate(zip(self.varying, prepared)):
            if array.shape != self.shapes[number]:
                raise InvalidRequest(f"operand {number} has shape {array.shape}; the expression is "
                                     f"for {self.shapes[number]}", reason="SHAPE_MISMATCH",
                                     field=f"operands[{number}]")
            if dtypes is not None and array.dtype != dtypes[place]:
                if not np.can_cast(array.dtype, dtypes[place], "safe"):
                    raise InvalidRequest(f"operand {number} is {array.dtype}; the first set had "
                                         f"{dtypes[place]}", reason="UNSUPPORTED_DTYPE",
                                         field=f"operands[{number}]")
                prepared[place] = array.astype(dtypes[place])
        return prepared

    def _check_count(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self.varying):
            raise InvalidRequest(f"{len(self.varying)} arrays are expected, {len(arrays)} are "
                                 "given", reason="BAD_EXPRESSION", field="operands")

    def one_set(self, item: Any) -> Sequence[Any]:
        """An item of many sets: arrays in their order, or the array itself where it is one."""
        return [item] if len(self.varying) == 1 and hasattr(item, "shape") else item

    def local(self, backend: str, arrays: Sequence[Any], out: np.ndarray | None) -> Any:
        """One call by a library of the client."""
        if self.plan is None:
            raise Unsupported("a path without a plan runs on the server only", field="backend")
        self._check_count(arrays)
        given = dict(zip(self.varying, arrays))
        operands = [given[n] if n in given else self.constants[n] for n in range(len(self.shapes))]
        return put_into(_backends.Execution(backend, self.network, operands).run(self.plan)[0], out)

    def __repr__(self) -> str:
        terms = []
        for number, names in enumerate(self.network.inputs):
            text = "".join(map(str, names)) if all(len(str(name)) == 1 for name in names) else (
                " ".join(map(str, names)))
            terms.append(f"[{text}]" if number in self.constants else text)
        right = "".join(map(str, self.network.output))
        constants = f", constants={sorted(self.constants)}" if self.constants else ""
        return f"<ContractExpression('{','.join(terms)}->{right}'{constants})>"


class Kept:
    """Calls of an expression that stand open and idle, at most `limit`. Not synchronised.

    Attributes:
      closed: nothing is kept any more.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise InvalidRequest(f"{limit} streams", reason="BAD_PARAMETER", field="streams")
        self._limit, self.closed = limit, False
        self._idle: list[tuple[tuple[np.dtype, ...], Question, Any]] = []

    def check_open(self) -> None:
        if self.closed:
            raise Unavailable("the expression is closed")

    def take(self, dtypes: tuple[np.dtype, ...]) -> tuple[tuple[Question, Any] | None, list[Any]]:
        """An idle call for these types; where there is none, calls for others that make room."""
        self.check_open()
        for place, (kept, question, stream) in enumerate(self._idle):
            if kept == dtypes:
                del self._idle[place]
                return (question, stream), []
        surplus = [self._idle.pop(0)[2]] if len(self._idle) >= self._limit else []
        return None, surplus

    def put(self, dtypes: tuple[np.dtype, ...], question: Question, stream: Any) -> bool:
        """False: the call is to be ended."""
        if not self.closed:
            self._idle.append((dtypes, question, stream))
        return not self.closed

    def close(self) -> list[Any]:
        """The calls to end."""
        self.closed = True
        idle, self._idle = self._idle, []
        return [stream for _, _, stream in idle]


def put_into(found: Any, out: np.ndarray | None) -> Any:
    """What the caller of an expression gets."""
    if out is None:
        return found
    out[...] = found
    return out


def is_stale(error: TenonError) -> bool:
    """Whether a stream that served before has ended for a reason that another may not share."""
    return isinstance(error, Unavailable) or error.reason in _STALE_REASONS


def expected_sets(sets: Iterable[Any]) -> int | None:
    """How many sets there are, where that can be told."""
    return len(sets) or None if hasattr(sets, "__len__") else None


def _parse(subscripts: Any, shapes: Sequence[Any], output: Sequence[Hashable] | None,
           ) -> tuple[Sequence[Sequence[Hashable]], Sequence[Hashable] | None, list[Any]]:
    """Inputs, output and shapes of the three forms."""
    if isinstance(subscripts, str):
        if output is not None:
            raise InvalidRequest("the text has its output", field="output")
        inputs, right = _networks.parse(subscripts)
        return inputs, right, list(shapes)
    if _is_interleaved(subscripts, shapes):
        given = [subscripts, *shapes]
        pairs, rest = given[:len(given) // 2 * 2], given[len(given) // 2 * 2:]
        inputs = [tuple(names) for names in pairs[1::2]]
        if not rest:  # opt_einsum's rule: sorted
            return inputs, sorted(_networks.single_indices(inputs)), pairs[::2]
        return inputs, tuple(rest[0]), pairs[::2]
    try:
        return [tuple(names) for names in subscripts], output, list(shapes)
    except TypeError:
        raise InvalidRequest("expected is an einsum text, or the indices of each operand",
                             reason="BAD_EXPRESSION", field="subscripts") from None


def _is_interleaved(first: Any, rest: Sequence[Any]) -> bool:
    return bool(rest) and (hasattr(first, "shape")
                           or isinstance(first, (tuple, list))
                           and all(isinstance(size, (int, np.integer)) for size in first))


def _constants(constants: Any, shapes: list[Any]) -> dict[int, np.ndarray]:
    for place in constants or ():
        if not isinstance(place, (int, np.integer)) or not 0 <= place < len(shapes):
            raise InvalidRequest(f"there is no operand {place!r}", field="constants")
    arrays = (constants if isinstance(constants, Mapping)
              else {place: shapes[place] for place in constants or ()})
    return dict(zip(map(int, arrays), _contraction.prepare(list(arrays.values()))))


def _shape(number: int, shape: Any) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in getattr(shape, "shape", shape))
    except TypeError:
        raise InvalidRequest(f"{shape!r} is no shape of operand {number}", reason="SHAPE_MISMATCH",
                             field=f"shapes[{number}]") from None


def operands(subscripts: Any, first: Any, constants: Mapping[int, Any]) -> list[Any]:
    """One array for each operand: the constants, and those of the first set between them."""
    count = subscripts.count(",") + 1 if isinstance(subscripts, str) else len(subscripts)
    given = [first] if count - len(constants) == 1 and hasattr(first, "shape") else list(first)
    if len(given) != count - len(constants):
        raise InvalidRequest(f"{count} operands are named; {len(constants)} are constant and the "
                             f"first set has {len(given)}", reason="BAD_EXPRESSION", field="sets")
    rest = iter(given)
    return [constants[n] if n in constants else _contraction.prepare([next(rest)])[0]
            for n in range(count)]
