"""What the steps of a path cost, within one slice."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from tenon.pictures._drawing import bad


@dataclasses.dataclass
class TreeCosts:
    """A contraction tree. Nodes are numbered as in single-assignment paths: first the operands.

    Attributes:
      children: of each node; operands have none.
      log2_sizes: elements of the node's tensor, one slice; -infinity for none.
      log10_flops: multiply-adds of the step that makes the node, one slice; of steps alone.
      log10_slices: number of slices.
    """

    children: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    log2_sizes: list[float] = dataclasses.field(default_factory=list)
    log10_flops: list[float] = dataclasses.field(default_factory=list)
    log10_slices: float = 0.0

    @property
    def total_log10_flops(self) -> float:
        """Multiply-adds of all steps in all slices, if nothing is reused between slices."""
        top = max(self.log10_flops, default=-math.inf)
        if top == -math.inf:
            return top
        return self.log10_slices + top + math.log10(sum(10**(flops - top)
                                                        for flops in self.log10_flops))

    @property
    def largest_log2_size(self) -> float:
        """Elements of the largest tensor that a step makes."""
        made = self.log2_sizes[len(self.log2_sizes) - len(self.log10_flops):]
        return max(made, default=-math.inf)


def tree_costs(inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable],
               sizes: Mapping[Hashable, int], steps: Sequence[Sequence[int]],
               sliced: Iterable[Hashable] = ()) -> TreeCosts:
    """Costs of a single-assignment path.

    A step costs the product of the sizes of all its indices; what it makes keeps those indices that
    another tensor or the output still holds. Sliced indices have the size 1. Steps of more than two
    operands go from left to right.

    Raises:
      InvalidRequest: BAD_PATH, UNKNOWN_INDEX; BAD_PARAMETER for sizes.
    """
    logs = _log2_sizes(inputs, output, sizes)
    costs = TreeCosts()
    for name in dict.fromkeys(sliced):
        if name not in logs:
            raise bad(f"no operand holds the sliced index {name!r}", "sliced", "UNKNOWN_INDEX")
        costs.log10_slices += logs[name] * math.log10(2)
        logs[name] = 0.0
    live = {number: frozenset(names) for number, names in enumerate(inputs)}
    holders = Counter(name for names in (*live.values(), frozenset(output)) for name in names)
    for names in live.values():
        costs.children.append(())
        costs.log2_sizes.append(_log2_product(names, logs))
    for number, step in enumerate(steps):
        operands = _take(live, step, number)
        made, flops = _contract(operands, holders, logs)
        live[len(costs.children)] = made
        costs.children.append(tuple(int(operand) for operand in step))
        costs.log2_sizes.append(_log2_product(made, logs))
        costs.log10_flops.append(flops * math.log10(2))
    if len(live) != 1:
        raise bad(f"after the last step {len(live)} tensors are left, not one", "path", "BAD_PATH")
    return costs


def _take(live: dict[int, frozenset[Hashable]], step: Sequence[int],
          number: int) -> list[frozenset[Hashable]]:
    if not step:
        raise bad(f"step {number} has no operand", f"path[{number}]", "BAD_PATH")
    try:
        return [live.pop(operand) for operand in step]
    except (KeyError, TypeError):
        raise bad(f"step {number} takes {tuple(step)}, which are not all there", f"path[{number}]",
                  "BAD_PATH") from None


def _contract(operands: Sequence[frozenset[Hashable]], holders: Counter[Hashable],
              logs: Mapping[Hashable, float]) -> tuple[frozenset[Hashable], float]:
    """The indices of the result, and log2 of the multiply-adds. Keeps `holders` up to date."""
    made, flops = operands[0], -math.inf
    parts = operands[1:] or [frozenset()]  # one operand alone is summed
    holders.subtract(operands[0])
    for operand in parts:
        holders.subtract(operand)
        held = made | operand
        flops = _log2_sum(flops, _log2_product(held, logs))
        made = frozenset(name for name in held if holders[name] > 0)
    holders.update(made)
    return made, flops


def _log2_sizes(inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable],
                sizes: Mapping[Hashable, int]) -> dict[Hashable, float]:
    names = dict.fromkeys(name for part in inputs for name in part)
    for name in output:
        if name not in names:
            raise bad(f"no operand holds the index {name!r} of the output", "output",
                      "UNKNOWN_INDEX")
    logs = {}
    for name in names:
        if name not in sizes:
            raise bad(f"index {name!r} has no size", "size_dict", "UNKNOWN_INDEX")
        try:
            logs[name] = math.log2(sizes[name]) if sizes[name] != 0 else -math.inf
        except (TypeError, ValueError):
            raise bad(f"{sizes[name]!r} is no size of index {name!r}", "size_dict") from None
    return logs


def _log2_product(names: Iterable[Hashable], logs: Mapping[Hashable, float]) -> float:
    return sum((logs[name] for name in names), 0.0)


def _log2_sum(first: float, second: float) -> float:
    high, low = max(first, second), min(first, second)
    return high if low == -math.inf else high + math.log2(1 + 2.0**(low - high))
