"""The tree of a contraction, coloured by what its steps cost."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon import plans
from tenon._networks import Network
from tenon.pictures import _colours, _drawing
from tenon.pictures._tree_costs import TreeCosts, tree_costs
from tenon.v1 import plan_pb2

_SIZE = (8.0, 4.8)
_MOST_LABELS = 60


def contraction_tree(plan: Any, inputs: Sequence[Sequence[Hashable]] | None = None,
                     output: Sequence[Hashable] = (),
                     size_dict: Mapping[Hashable, int] | None = None, ax: Any = None, *,
                     sliced: Sequence[Hashable] = (), ssa: bool = False,
                     colour_bars: bool = True) -> Any:
    """Operands below, steps above them: lines are tensors, points are steps.

    Line colour and width tell the elements of a tensor, colour and area of a point the
    multiply-adds of a step, both within one slice and as if slices shared nothing.

    Args:
      plan: a `Plan`, a `ContractionReport`, or a path as for `Client.contract`.
      inputs: the indices of each operand. They may be left out with a plan that holds its network.
      output: the indices of the result.
      size_dict: the size of each index.
      ax: where to draw.
      sliced: the sliced indices of a path; a plan or a report has its own.
      ssa: whether a path is in single-assignment form; a plan or a report tells itself.
      colour_bars: whether the scales are drawn beside the axes.

    Returns:
      The axes: a ``LineCollection``, one line from every node but the last to the step that takes
      it, in order of the nodes' numbers (operands first, then steps), with log2 of the elements as
      its array; a ``PathCollection`` of steps with log10 of the multiply-adds; and one of operands.

    Raises:
      InvalidRequest: BAD_PATH, UNKNOWN_INDEX, MISSING_FIELD.
    """
    if inputs is None:
        inputs, output, size_dict = _own_network(plan)
    steps, sliced, by_text = _path(plan, sliced, ssa, len(inputs))
    sizes = dict(size_dict or {})
    if by_text:
        names = Network(inputs, output).names
        sliced = [names.get(text, text) for text in sliced]
    costs = tree_costs(inputs, output, sizes, steps, sliced)
    ax = _drawing.axes(ax, _SIZE)
    _draw(ax, costs, _positions(costs.children), len(inputs), colour_bars)
    return ax


def _own_network(plan: Any) -> tuple[Any, Any, Any]:
    """Inputs, output and sizes that a plan holds."""
    network = getattr(plan, "network", None)
    if network is None:
        raise _drawing.bad("inputs, output and size_dict are needed: the plan does not hold its "
                           "network", "inputs", "MISSING_FIELD")
    return network.inputs, network.output, network.sizes()


def _path(plan: Any, sliced: Sequence[Hashable], ssa: bool,
          n_operands: int) -> tuple[Sequence[Sequence[int]], Sequence[Hashable], bool]:
    """A single-assignment path, the sliced indices, and whether these are texts of the server."""
    if isinstance(plan, plans.Plan):
        return plan.ssa_path, plan.sliced, False
    summary = getattr(plan, "plan", None)
    if summary is not None:
        if not summary.HasField("path"):
            raise _drawing.bad("the report has no path: it was asked for with detail='brief'",
                               "plan", "MISSING_FIELD")
        steps: Any = [tuple(step.operands) for step in summary.path.steps]
        sliced = list(summary.sliced_indices)
        ssa = summary.path.format == plan_pb2.PATH_FORMAT_SSA
    else:
        steps = plan
    if isinstance(steps, (str, bytes)) or not isinstance(steps, Sequence) or not all(
            isinstance(step, Sequence) and not isinstance(step, str) for step in steps):
        raise _drawing.bad("a plan is a Plan, a report, or a list of tuples of operands, not "
                           + type(plan).__name__, "plan")
    if not n_operands:
        raise _drawing.bad("there are no operands", "inputs", "MISSING_FIELD")
    if not ssa:
        steps = _to_ssa(steps, n_operands)
    return steps, sliced, summary is not None


def _to_ssa(steps: Sequence[Sequence[int]], n_operands: int) -> list[tuple[int, ...]]:
    """Numbers that are used once in place of positions in the current list."""
    current = list(range(n_operands))
    path = []
    for number, step in enumerate(steps):
        try:
            if any(place < 0 for place in step):
                raise IndexError
            path.append(tuple(current[place] for place in step))
        except (IndexError, TypeError):
            raise _drawing.bad(f"step {number} takes {tuple(step)} of {len(current)} tensors",
                               f"path[{number}]", "BAD_PATH") from None
        taken = set(path[-1])
        current = [operand for operand in current if operand not in taken] + [n_operands + number]
    return path


def _positions(children: Sequence[Sequence[int]]) -> np.ndarray:
    """x and y of every node: operands in a row without crossings, steps above their operands."""
    places = np.zeros((len(children), 2))
    waiting, at = [len(children) - 1], 0
    while waiting:  # depth first, no recursion: paths may be thousands of steps deep
        node = waiting.pop()
        if not children[node]:
            places[node, 0] = at
            at += 1
        waiting.extend(reversed(children[node]))
    for node, below in enumerate(children):  # children have smaller numbers
        if below:
            places[node] = (places[list(below), 0].mean(), 1 + places[list(below), 1].max())
    return places


def _draw(ax: Any, costs: TreeCosts, places: np.ndarray, n_operands: int,
          colour_bars: bool) -> None:
    parent = np.zeros(len(places), dtype=int)
    for node, below in enumerate(costs.children):
        parent[list(below)] = node
    sizes = np.ma.masked_invalid(costs.log2_sizes[:-1])
    begins, ends = places[:-1], places[parent[:-1]]
    corners = np.stack([begins[:, 0], ends[:, 1]], axis=1)  # up, then across: nothing crosses
    lines = _drawing.matplotlib("collections").LineCollection(
        np.stack([begins, corners, ends], axis=1), array=sizes, cmap=_colours.SEQUENTIAL,
        linewidths=0.8 + 3.2 * _relative(sizes), zorder=1)
    ax.add_collection(lines)
    flops = np.ma.masked_invalid(costs.log10_flops)
    steps = ax.scatter(*places[n_operands:].T, c=flops, s=12 + 68 * _relative(flops), cmap="plasma",
                       edgecolors="black", linewidths=0.5, zorder=2)
    ax.scatter(*places[:n_operands].T, c="0.4", s=14, marker="s", zorder=2)
    if len(costs.log10_flops) and colour_bars:
        ax.figure.colorbar(lines, ax=ax).set_label("tensor: elements per slice, log2")
        ax.figure.colorbar(steps, ax=ax).set_label("step: multiply-adds per slice, log10")
    _label(ax, costs, places, n_operands)


def _relative(values: np.ma.MaskedArray) -> np.ndarray:
    """0 for the smallest to 1 for the largest; 0 for what is masked."""
    shown = values.compressed()
    if not len(shown) or shown.max() == shown.min():
        return np.zeros(len(values))
    return ((values - shown.min()) / (shown.max() - shown.min())).filled(0)


def _label(ax: Any, costs: TreeCosts, places: np.ndarray, n_operands: int) -> None:
    if n_operands <= _MOST_LABELS:
        ax.set_xticks(places[:n_operands, 0], range(n_operands), fontsize="small")
    else:
        ax.set_xticks([])
    ax.set(xlabel="operand", ylabel="steps above the operands")
    ax.yaxis.get_major_locator().set_params(integer=True)
    slices = 10**costs.log10_slices if costs.log10_slices < 300 else float("inf")
    ax.set_title(f"10^{costs.total_log10_flops:.2f} multiply-adds in {slices:.6g} "
                 f"slice{'' if costs.log10_slices == 0 else 's'}, largest tensor "
                 f"2^{costs.largest_log2_size:.2f} elements", fontsize="medium")
