"""What callers of opt_einsum and cotengra pass as `optimize`, as options of a contraction."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tenon.errors import InvalidRequest, Unsupported
from tenon.plans import Plan

# Names that both libraries use, and the server's methods behind them.
_PRESETS: dict[str, dict[str, Any]] = {
    "auto": {}, "auto-hq": {}, "tenon": {},
    "greedy": {"methods": ["greedy"]}, "eager": {"methods": ["greedy"]},
    "random-greedy": {"methods": ["random_greedy"]},
    "optimal": {"methods": ["exact"]}, "dp": {"methods": ["exact"]},
}


def symbol(number: int) -> str:
    """The letter of index `number`, as in opt_einsum: ASCII, then Unicode without surrogates."""
    if number < 52:
        return chr((ord("a") if number < 26 else ord("A") - 26) + number)
    return chr(number + 140) if number + 140 < 0xD800 else chr(number + 2188)


def symbols(inputs: Sequence[Sequence[Hashable]]) -> dict[Hashable, str]:
    """One letter for each index, in order of appearance."""
    found: dict[Hashable, str] = {}
    for names in inputs:
        for name in names:
            found.setdefault(name, symbol(len(found)))
    return found


def resolve(optimize: Any, inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable],
            sizes: Mapping[Hashable, int]) -> dict[str, Any]:
    """Options ``plan``, ``path`` with ``sliced``, or of a search.

    Takes None, True and "auto" (the server searches), the names of `_PRESETS`, a `Plan`, a linear
    path, a cotengra ``ContractionTree``, and path optimizers of opt_einsum and cotengra.
    """
    if optimize is None or optimize is True:
        return {}
    if isinstance(optimize, Plan):
        return {"plan": optimize}
    if isinstance(optimize, str):
        if optimize not in _PRESETS:
            raise InvalidRequest(f"'{optimize}' is not known; expected is one of "
                                 + ", ".join(_PRESETS), reason="BAD_PARAMETER", field="optimize")
        return dict(_PRESETS[optimize])
    if hasattr(optimize, "get_ssa_path"):
        return _given_tree(optimize, inputs)
    if callable(optimize):
        return _ask(optimize, inputs, output, sizes)
    try:
        return {"path": [tuple(int(number) for number in step) for step in optimize]}
    except (TypeError, ValueError):
        raise InvalidRequest(f"{optimize!r} is neither a path nor something that finds one",
                             reason="BAD_PARAMETER", field="optimize") from None


def tree_options(tree: Any, names: Mapping[str, Hashable] | None = None) -> dict[str, Any]:
    """Path and slices of a cotengra tree; `names`: what its indices stand for."""
    if not hasattr(tree, "get_ssa_path") or "Compressed" in type(tree).__name__:
        raise Unsupported("only exact contraction trees run on the server")
    if not tree.is_complete():
        raise InvalidRequest("the tree is not complete", reason="BAD_PATH", field="tree")
    return {"path": tree.get_ssa_path(), "ssa": True,
            "sliced": [names[name] if names else name for name in tree.sliced_inds]}


def _given_tree(tree: Any, inputs: Sequence[Sequence[Hashable]]) -> dict[str, Any]:
    """A tree of the caller's own indices keeps them; cotengra's functions make letters of them."""
    terms = [list(term) for term in tree.inputs]
    if terms == [list(names) for names in inputs]:
        return tree_options(tree)
    letters = symbols(inputs)
    if terms != [[letters[name] for name in names] for names in inputs]:
        raise InvalidRequest("the tree belongs to another network", reason="BAD_PATH",
                             field="optimize")
    return tree_options(tree, {letter: name for name, letter in letters.items()})


def _ask(optimize: Callable[..., Any], inputs: Sequence[Sequence[Hashable]],
         output: Sequence[Hashable], sizes: Mapping[Hashable, int]) -> dict[str, Any]:
    letters = symbols(inputs)
    terms = [[letters[name] for name in names] for names in inputs]
    result = [letters[name] for name in output]
    lengths = {letters[name]: sizes[name] for name in letters}
    if hasattr(optimize, "search"):
        tree = optimize.search([tuple(term) for term in terms], tuple(result), lengths)
        return tree_options(tree, {letter: name for name, letter in letters.items()})
    path = optimize([frozenset(term) for term in terms], frozenset(result), lengths)
    return {"path": [tuple(step) for step in path]}
