"""cotengra's contraction trees, to and from plans."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tenon import _optimize, _optional
from tenon._networks import Network
from tenon.errors import InvalidRequest
from tenon.plans import Plan


def from_plan(plan: Plan) -> Any:
    """A ``ContractionTree``, its slices removed; see `Plan.tree` for the names of its indices."""
    cotengra = _optional.load("cotengra", "a contraction tree")
    if plan.network is None:
        raise InvalidRequest("the plan does not know its network", field="plan")
    letters = names(plan.network)
    tree = cotengra.ContractionTree.from_path(
        [tuple(letters[name] for name in term) for term in plan.network.inputs],
        tuple(letters[name] for name in plan.network.output),
        {letters[name]: size for name, size in plan.sizes.items()}, ssa_path=plan.ssa_path)
    for name in plan.sliced:
        tree.remove_ind_(letters[name])
    return tree


def names(network: Network) -> dict[Hashable, str]:
    """What a tree calls the indices. cotengra computes with single letters only."""
    if all(isinstance(name, str) and len(name) == 1 for name in network.texts):
        return {name: str(name) for name in network.texts}
    return _optimize.symbols(network.inputs)


class TreeCall:
    """The contraction that a tree stands for, on these arrays.

    An index that the tree projects to one value is narrowed to it, and stays in the output with
    length 1, as in cotengra.
    """

    def __init__(self, tree: Any, arrays: Sequence[Any]) -> None:
        self.options = _optimize.tree_options(tree)
        projected = {name: info.project for name, info in tree.sliced_inds.items()
                     if info.project is not None}
        self.options["sliced"] = [name for name in self.options["sliced"] if name not in projected]
        sizes = {name: 1 if name in projected else size for name, size in tree.size_dict.items()}
        held = {name for names in tree.inputs for name in names}
        self.network = Network(tree.inputs, tree.output,
                               {name: size for name, size in sizes.items() if name in held})
        self.arrays = list(arrays)
        if projected and len(self.arrays) == len(self.network.inputs):
            self.arrays = [
                array[tuple(slice(projected[name], projected[name] + 1) if name in projected
                            else slice(None) for name in names)] if names else array
                for array, names in zip(self.arrays, self.network.inputs)]
