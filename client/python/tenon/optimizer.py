"""A path optimizer for opt_einsum, cotengra and quimb that asks a Tenon server."""

from __future__ import annotations

import collections
import threading
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from tenon import _options
from tenon.client import Client, default_client
from tenon.errors import Unsupported
from tenon.plans import Plan

try:
    # opt_einsum takes nothing else for an optimizer.
    from opt_einsum.paths import PathOptimizer as _Base
except ImportError:
    _Base = object

__all__ = ["Optimizer"]

_KEPT_PLANS = 256


class Optimizer(_Base):  # type: ignore[misc,valid-type]
    """Paths and slices from the server's search; the caller's library computes.

        tn.contract(optimize=tenon.Optimizer(max_time=2, target_size=2**27))   # quimb
        cotengra.einsum(eq, *arrays, optimize=tenon.Optimizer())
        opt_einsum.contract(eq, *arrays, optimize=tenon.Optimizer())

    cotengra and quimb get trees with slices. opt_einsum gets a path, which can't carry slices:
    where the target needs them, that is `Unsupported`. Plans are kept: one that was found is found again
    at once. Thread-safe.

    Args:
      client: whom to ask (default: the default client).
      options: those of `Client.plan`: ``max_time``, ``max_trials``, ``seed``, ``target_size``,
        ``minimize``, ``allow_output_slicing``, ``dtype``, ...
    """

    def __init__(self, client: Client | None = None, **options: Any) -> None:
        _options.refuse_unknown({name: value for name, value in options.items() if name not in (
            *_options.SEARCH_NAMES, "dtype", "timeout", "memory_budget", "on_improvement",
            "providers", "threads")})
        self._client, self._options = client, options
        self._plans: collections.OrderedDict[Any, Plan] = collections.OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, inputs: Sequence[Collection[Hashable]], output: Collection[Hashable],
                 size_dict: Mapping[Hashable, int],
                 memory_limit: int | None = None) -> list[tuple[int, ...]]:
        """A linear path, as opt_einsum asks for it.

        Args:
          memory_limit: largest number of elements of an intermediate.

        Raises:
          Unsupported: a limit that only slices can keep; it is a ``NotImplementedError``.
        """
        plan = self.plan(inputs, output, size_dict, memory_limit)
        if plan.sliced:
            raise Unsupported("a path has no slices, which the size limit needs here; use search(),"
                              " or a library that does", field="target_size")
        return plan.linear_path

    def search(self, inputs: Sequence[Collection[Hashable]], output: Collection[Hashable],
               size_dict: Mapping[Hashable, int], **_: Any) -> Any:
        """A cotengra ``ContractionTree``, slices included, as cotengra and quimb ask for it.

        `inputs`, `output` and `size_dict` are the network.
        """
        return self.plan(inputs, output, size_dict).tree()

    def plan(self, inputs: Sequence[Collection[Hashable]], output: Collection[Hashable],
             size_dict: Mapping[Hashable, int], memory_limit: int | None = None) -> Plan:
        """The server's plan; the same one for the same network.

        Args:
          inputs, output, size_dict: the network.
          memory_limit: largest number of elements of an intermediate.
        """
        terms, right = [_in_order(term) for term in inputs], _in_order(output)
        held = {name for term in terms for name in term}
        sizes = {name: int(size) for name, size in size_dict.items() if name in held}
        key = (tuple(terms), right, tuple(sorted(sizes.items(), key=str)), memory_limit)
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
        options = dict(self._options)
        if memory_limit is not None:
            options["target_size"] = min(memory_limit, options.get("target_size") or memory_limit)
        client = self._client or default_client()
        plan = client.plan(terms, right, sizes, **options)
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > _KEPT_PLANS:
                self._plans.popitem(last=False)
        return plan

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        return f"Optimizer({options})"


def _in_order(names: Collection[Hashable]) -> tuple[Hashable, ...]:
    """opt_einsum gives sets, whose order says nothing."""
    return tuple(names if isinstance(names, (tuple, list, str)) else sorted(names, key=str))
