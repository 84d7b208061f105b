"""What a contraction path costs, by Tenon's cost model; every party is judged with it alike.

Per step that joins A and B into C: flops grow by the product of the sizes in the union of their
indices (scalar multiply-adds), traffic by |A| + |B| + |C|. Inputs count with their axes as they are
given. An index dies when neither the output nor another tensor has it. A sliced index has size 1 in
a slice; everything counts once per slice.
"""

import dataclasses
import math

READ_WRITE_WEIGHT = {"flops": 0, "weighted": 64}


class PathError(Exception):
    """The path is none of this network."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """`flops` and `read_write` of all slices; `largest` result of a step, elements of a slice."""
    flops: int
    read_write: int
    largest: int
    slices: int

    def score(self, objective: str) -> int:
        return self.flops + READ_WRITE_WEIGHT[objective] * self.read_write


def log10(value: int) -> float:
    """Of a positive integer of any size."""
    return math.log10(value) if value > 0 else -math.inf


def _slices(network, sliced) -> int:
    names = set(sliced)
    if len(names) != len(list(sliced)) or not names <= network.sizes.keys():
        raise PathError(f"{network.name}: sliced indices that are twice there or unknown")
    return math.prod(network.sizes[name] for name in names)


def evaluate(network, path, sliced=()) -> Cost:
    """The cost of an SSA path: inputs are 0..N-1, step k makes N+k. PathError if it is broken."""
    slices = _slices(network, sliced)
    names = list(network.sizes)
    number = {name: k for k, name in enumerate(names)}
    size = [1 if name in set(sliced) else network.sizes[name] for name in names]

    def elements(legs):
        return math.prod(size[leg] for leg in legs)

    holders = [0] * len(names)
    tensors = {}
    for k, indices in enumerate(network.inputs):
        legs = [number[name] for name in indices]
        tensors[k] = (frozenset(legs), elements(legs))
        for leg in set(legs):
            holders[leg] += 1
    for name in network.output:
        holders[number[name]] += 1

    flops = read_write = largest = 0
    for step, pair in enumerate(path):
        try:
            a, b = pair
            (a_legs, a_size), (b_legs, b_size) = tensors.pop(a), tensors.pop(b)
        except (ValueError, TypeError, KeyError) as error:
            raise PathError(f"{network.name}: step {step} {pair}") from error
        union = a_legs | b_legs
        for leg in union:
            holders[leg] -= (leg in a_legs) + (leg in b_legs)
        legs = frozenset(leg for leg in union if holders[leg] > 0)
        for leg in legs:
            holders[leg] += 1
        c_size = elements(legs)
        tensors[len(network.inputs) + step] = (legs, c_size)
        flops += elements(union)
        read_write += a_size + b_size + c_size
        largest = max(largest, c_size)
    if len(tensors) != 1:
        raise PathError(f"{network.name}: {len(tensors)} tensors are left")
    return Cost(flops * slices, read_write * slices, largest, slices)


def ssa_from_linear(path, count):
    """An SSA path out of one with recycled positions (opt_einsum's)."""
    alive, ssa = list(range(count)), []
    for step, pair in enumerate(path):
        ssa.append([alive.pop(position) for position in sorted(pair, reverse=True)][::-1])
        alive.append(count + step)
    return ssa
