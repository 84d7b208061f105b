"""Execution on the client by an array library, along the server's path and slices.

The library that is named does all of it; arrays stay where they lie, and nothing else is tried when
it fails. Slices run one after the other, in the plan's order.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from tenon import _fields, _optimize, _optional
from tenon._networks import Network
from tenon.errors import InvalidRequest
from tenon.plans import Plan

# Library, and how its arrays' class is called there.
_LIBRARIES = {"numpy": ("numpy", "ndarray"), "torch": ("torch", "Tensor"),
              "cupy": ("cupy", "ndarray"), "jax": ("jax.numpy", "ndarray")}
# The others may return from a call before the work is done.
_SYNCHRONOUS = ("numpy",)
_DTYPES = ("float32", "float64", "complex64", "complex128")
NATIVE = "native"


def is_native(backend: str | None) -> bool:
    """Whether the server computes.

    Raises:
      InvalidRequest: the name is none of the libraries.
    """
    if backend is None or backend == NATIVE:
        return True
    if backend == "auto":
        raise InvalidRequest("backend 'auto' is not taken: the choice is the caller's",
                             reason="BAD_PARAMETER", field="backend")
    if backend not in _LIBRARIES:
        raise InvalidRequest(f"{backend!r} is no backend; expected is one of native, "
                             + ", ".join(_LIBRARIES), reason="BAD_PARAMETER", field="backend")
    return False


class Execution:
    """Arrays of one library that wait for a plan.

    Raises:
      ImportError: without opt_einsum, or without the library.
      InvalidRequest: arrays of another library, shapes that do not fit, element types besides
        float32, float64, complex64 and complex128, or several of them.
    """

    def __init__(self, backend: str, network: Network, arrays: Sequence[Any]) -> None:
        begin = time.perf_counter()
        self.backend, self.network = backend, network
        self._opt_einsum = _optional.load("opt_einsum", "backend=")
        name, kind = _LIBRARIES[backend]
        self._library = _optional.load(name, f"backend={backend!r}")
        self._arrays = [self._check(number, array, getattr(self._library, kind))
                        for number, array in enumerate(arrays)]
        if len(self._arrays) != len(network.inputs):
            raise InvalidRequest(f"{len(network.inputs)} operands are named, {len(self._arrays)} "
                                 "are given", reason="BAD_EXPRESSION", field="operands")
        self.sizes = network.sizes([tuple(array.shape) for array in self._arrays])
        self.dtype = self._common_dtype()
        self._prepare_seconds = time.perf_counter() - begin

    def _check(self, number: int, array: Any, kind: type) -> Any:
        if self.backend == "numpy":
            try:
                return np.asarray(array)
            except (TypeError, ValueError, RuntimeError) as error:
                raise InvalidRequest(f"operand {number} is nothing for NumPy: {error}",
                                     reason="BAD_PARAMETER", field=f"operands[{number}]") from None
        if isinstance(array, kind):
            return array
        name = f"{type(array).__module__}.{type(array).__name__}"
        raise InvalidRequest(f"operand {number} is a {name}, which backend {self.backend!r} does "
                             "not take", reason="BAD_PARAMETER", field=f"operands[{number}]")

    def _common_dtype(self) -> str:
        names = sorted({str(array.dtype).rpartition(".")[2] for array in self._arrays})
        if len(names) != 1 or names[0] not in _DTYPES:
            raise InvalidRequest("operands are of " + " and ".join(names) + "; expected is one of "
                                 + ", ".join(_DTYPES), reason="UNSUPPORTED_DTYPE", field="operands")
        return names[0]

    def run(self, plan: Plan) -> tuple[Any, dict[str, float | None | str]]:
        """The value, and the fields of its execution."""
        begin = time.perf_counter()
        expression = self._compile(plan)
        compiled = time.perf_counter() - begin
        selections = [self._selection(names, plan.sliced) for names in self.network.inputs]
        setup = time.perf_counter() - begin
        blocks = self._blocks(plan, expression, selections)
        value = self._join(blocks, plan.sliced)
        dispatch = time.perf_counter() - begin - setup
        synchronous = self.backend in _SYNCHRONOUS
        return value, _fields.execution_fields(
            self.backend, "tenon.sliced_contract_expression" if plan.sliced
            else "opt_einsum.contract_expression", prepare=self._prepare_seconds, compiled=compiled,
            setup=setup, dispatch=dispatch, wall=setup + dispatch if synchronous else None,
            scope=_fields.SYNCHRONOUS if synchronous else _fields.UNVERIFIED)

    def _compile(self, plan: Plan) -> Callable[..., Any]:
        letters = _optimize.symbols(self.network.inputs)
        terms = [[name for name in names if name not in plan.sliced]
                 for names in (*self.network.inputs, self.network.output)]
        text = ["".join(letters[name] for name in names) for names in terms]
        shapes = [tuple(self.sizes[name] for name in names) for names in terms[:-1]]
        # A single operand has an empty path, which opt_einsum takes for none at all.
        return self._opt_einsum.contract_expression(
            ",".join(text[:-1]) + "->" + text[-1], *shapes, optimize=plan.linear_path or [(0,)])

    def _selection(self, names: Sequence[Hashable],
                   sliced: Sequence[Hashable]) -> Callable[[Sequence[int]], tuple[Any, ...]]:
        places = [sliced.index(name) if name in sliced else None for name in names]
        return lambda values: tuple(slice(None) if place is None else values[place]
                                    for place in places)

    def _blocks(self, plan: Plan, expression: Callable[..., Any],
                selections: Sequence[Callable[[Sequence[int]], tuple[Any, ...]]]) -> list[Any]:
        """The sums over the slices of each block of the output, in the order of the blocks."""
        outer = sum(1 for name in plan.sliced if name in self.network.output)
        blocks: dict[tuple[int, ...], Any] = {}
        for values in itertools.product(*(range(self.sizes[name]) for name in plan.sliced)):
            parts = [array[select(values)] if array.shape else array
                     for array, select in zip(self._arrays, selections)]
            part = expression(*parts, backend=self.backend)
            block = values[:outer]
            blocks[block] = blocks[block] + part if block in blocks else part
        return list(blocks.values())

    def _join(self, blocks: list[Any], sliced: Sequence[Hashable]) -> Any:
        """Restores the sliced axes of the output, the one that varies fastest first."""
        output = self.network.output
        left = [name for name in sliced if name in output]
        while left:
            name = left.pop()
            axis = sum(1 for other in output[:output.index(name)] if other not in left)
            size = self.sizes[name]
            blocks = [self._library.stack(blocks[first:first + size], axis)
                      for first in range(0, len(blocks), size)]
        return blocks[0]
