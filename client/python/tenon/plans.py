"""Plans: a path with its slices, and what they cost."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from tenon._networks import Network
from tenon.errors import InvalidRequest
from tenon.v1 import plan_pb2

__all__ = ["Plan"]

OBJECTIVES = {
    "flops": plan_pb2.SEARCH_OBJECTIVE_FLOPS,
    "write": plan_pb2.SEARCH_OBJECTIVE_READ_WRITE,
    "weighted": plan_pb2.SEARCH_OBJECTIVE_WEIGHTED,
    "size": plan_pb2.SEARCH_OBJECTIVE_LARGEST_INTERMEDIATE,
    "seconds": plan_pb2.SEARCH_OBJECTIVE_SECONDS,
}


class Plan:
    """A path in single-assignment form, its sliced indices, and the figures of the server.

    Args:
      summary: the message ``tenon.v1.PlanSummary``.
      n_operands: how many operands the network has.
      names: the caller's name of each index, by its name on the wire; default: the latter.
      planned_peak_bytes: on the host; 0: unknown.

    Attributes:
      ssa_path: pairs of operands; step k makes operand n + k.
      sliced: the sliced indices, as the caller named them.
      slices: how many slices there are.
      log10_flops: multiply-adds that really run, log10.
      largest_intermediate: elements within one slice.
      predicted_seconds: by the server's time model, or ``None``.
      network: inputs, output and sizes that it was made for.
      summary: the message ``tenon.v1.PlanSummary``.
    """

    def __init__(self, summary: plan_pb2.PlanSummary, n_operands: int,
                 names: Mapping[str, Hashable] | None = None, planned_peak_bytes: int = 0,
                 network: Network | None = None) -> None:
        names = names or {}
        self.network = network
        self.summary = summary
        self.n_operands = n_operands
        self.planned_peak_bytes = planned_peak_bytes
        self.plan_id = summary.plan_id
        self.ssa_path = [tuple(step.operands) for step in summary.path.steps]
        self.sliced = [names.get(name, name) for name in summary.sliced_indices]
        self.slices = summary.slices
        self.log10_flops = summary.log10_flops
        self.largest_intermediate = summary.largest_intermediate_elements
        self.predicted_seconds = (summary.predicted_seconds
                                  if summary.HasField("predicted_seconds") else None)

    @property
    def sizes(self) -> dict[Hashable, int]:
        """The size of every index, by the caller's names."""
        return self.network.sizes() if self.network is not None else {}

    @property
    def linear_path(self) -> list[tuple[int, ...]]:
        """The path in the form of opt_einsum and ``numpy.einsum_path``."""
        return ssa_to_linear(self.ssa_path, self.n_operands)

    def explicit(self) -> plan_pb2.ExplicitPlan:
        """The message that has a contraction run along it."""
        return plan_pb2.ExplicitPlan(path=self.summary.path,
                                     sliced_indices=self.summary.sliced_indices)

    def tree(self) -> Any:
        """A cotengra ``ContractionTree`` with the path and the slices.

        Its indices have the caller's names where all are single letters; else cotengra's, one
        letter each in order of appearance, as its own functions and quimb's make them.

        Raises:
          ImportError: without cotengra.
        """
        from tenon import _trees

        return _trees.from_plan(self)

    def __repr__(self) -> str:
        seconds = "" if self.predicted_seconds is None else f", {self.predicted_seconds:.3g} s"
        return (f"Plan({self.n_operands} operands, 10^{self.log10_flops:.2f} multiply-adds, "
                f"{self.slices} slice{'' if self.slices == 1 else 's'}, largest intermediate "
                f"{self.largest_intermediate:.4g}{seconds})")


def ssa_to_linear(steps: Sequence[Sequence[int]], n_operands: int) -> list[tuple[int, ...]]:
    """Positions in the current list in place of numbers that are used once."""
    current = list(range(n_operands))
    linear = []
    for number, step in enumerate(steps, n_operands):
        places = sorted(current.index(operand) for operand in step)
        for place in reversed(places):
            del current[place]
        current.append(number)
        linear.append(tuple(places))
    return linear


def explicit_plan(path: Sequence[Sequence[int]], sliced: Sequence[Any], *, ssa: bool,
                  texts: Mapping[Any, str] | None = None) -> plan_pb2.ExplicitPlan:
    """A path of the wire; `texts`: the wire's names of the sliced indices."""
    texts = texts or {}
    wire = plan_pb2.ContractionPath(
        format=plan_pb2.PATH_FORMAT_SSA if ssa else plan_pb2.PATH_FORMAT_LINEAR,
        steps=[plan_pb2.PathStep(operands=[int(number) for number in step]) for step in path])
    return plan_pb2.ExplicitPlan(path=wire, sliced_indices=[
        texts.get(name, str(name)) for name in sliced])


def objective(name: str, options: plan_pb2.SearchOptions) -> None:
    """Sets "flops", "write", "size", "seconds", "weighted" or "weighted-256" (reads and writes)."""
    kind, _, weight = name.partition("-")
    if kind not in OBJECTIVES or (weight and kind != "weighted"):
        raise InvalidRequest(f"'{name}' is no objective; expected is one of "
                             + ", ".join(OBJECTIVES), field="search.objective")
    options.objective = OBJECTIVES[kind]
    if weight:
        options.read_write_weight = float(weight)
