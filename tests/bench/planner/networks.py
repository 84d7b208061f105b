"""The networks that are planned: the shared corpus, and ones that are made here."""

import dataclasses
import hashlib
import itertools
import json
import pathlib
import random

from corpus import BenchError


@dataclasses.dataclass(frozen=True)
class Network:
    """Index names per tensor and of the output, and sizes."""
    name: str
    inputs: list
    output: list
    sizes: dict
    role: str  # "exec", "plan" or "made"
    source: str = ""
    sliceable: bool = True  # False: so wide that slices to any useful size are beyond counting

    def document(self) -> dict:
        """As a network file, without a path."""
        return {"name": self.name, "inputs": self.inputs, "output": self.output,
                "size_dict": self.sizes}

    def digest(self) -> str:
        text = json.dumps(self.document(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read(path) -> Network:
    data = json.loads(pathlib.Path(path).read_text())
    return Network(data["name"], data["inputs"], data["output"], data["size_dict"],
                   data.get("role", "plan"), data.get("source", ""))


def corpus(folder) -> list:
    """The networks in `folder`, by name; [] when there is none."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        data = json.loads(path.read_text())
        if isinstance(data, dict) and "inputs" in data and "role" in data:
            found.append(read(path))
    return found


def from_edges(name, count, edges, size, source) -> Network:
    """One index per edge; a tensor per vertex."""
    inputs = [[] for _ in range(count)]
    sizes = {}
    for number, ends in enumerate(edges):
        index = f"e{number}"
        sizes[index] = size
        for vertex in ends:
            inputs[vertex].append(index)
    return Network(name, inputs, [], sizes, "made", source)


def _connected(count, edges) -> bool:
    neighbours = [[] for _ in range(count)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    seen, stack = {0}, [0]
    while stack:
        for vertex in neighbours[stack.pop()]:
            if vertex not in seen:
                seen.add(vertex)
                stack.append(vertex)
    return len(seen) == count


def random_regular(count, degree, seed, size=2, name=None) -> Network:
    """A connected simple random regular graph: random pairs of stubs, mended by switches."""
    rng = random.Random(seed)
    while True:
        stubs = [vertex for vertex in range(count) for _ in range(degree)]
        rng.shuffle(stubs)
        edges = [tuple(sorted(pair)) for pair in zip(stubs[::2], stubs[1::2])]
        if _mend(edges, rng) and _connected(count, edges):
            return from_edges(name or f"made_randreg{degree}_n{count}", count, sorted(edges), size,
                              f"random {degree}-regular graph, seed {seed}")


def _mend(edges, rng) -> bool:
    """Switches ends until no edge is a loop or there twice; False if that did not end."""
    for _ in range(100 * len(edges)):
        seen, bad = set(), None
        for k, edge in enumerate(edges):
            if edge[0] == edge[1] or edge in seen:
                bad = k
                break
            seen.add(edge)
        if bad is None:
            return True
        other = rng.randrange(len(edges))
        (a, b), (c, d) = edges[bad], edges[other]
        edges[bad], edges[other] = tuple(sorted((a, d))), tuple(sorted((c, b)))
    return False


def lattice(shape, size=2, name=None) -> Network:
    """Open boundaries."""
    sites = list(itertools.product(*map(range, shape)))
    number = {site: k for k, site in enumerate(sites)}
    edges = []
    for site in sites:
        for axis in range(len(shape)):
            other = tuple(x + (k == axis) for k, x in enumerate(site))
            if other in number:
                edges.append((number[site], number[other]))
    text = "x".join(map(str, shape))
    return from_edges(name or f"made_lattice_{text}", len(sites), edges, size, f"{text} lattice")


def chain(count, seed) -> Network:
    """Matrices of sizes 2..64 in a row; the outer indices are the output."""
    rng = random.Random(seed)
    sizes = {f"c{k}": rng.choice((2, 4, 8, 16, 32, 64)) for k in range(count + 1)}
    inputs = [[f"c{k}", f"c{k + 1}"] for k in range(count)]
    return Network(f"made_chain_{count}", inputs, ["c0", f"c{count}"], sizes, "made",
                   f"matrix chain, seed {seed}")


def binary_tree(levels) -> Network:
    count = 2**levels - 1
    edges = [((k - 1) // 2, k) for k in range(1, count)]
    return from_edges(f"made_tree_{count}", count, edges, 8, "binary tree, bond 8")


def random_hyper(count, indices, seed) -> Network:
    """Indices of 2..5 tensors, sizes 2..4, some of them in the output."""
    rng = random.Random(seed)
    inputs, sizes = [[] for _ in range(count)], {}
    for k in range(indices):
        holders = rng.sample(range(count), rng.choice((2, 2, 2, 3, 3, 5)))
        sizes[f"h{k}"] = rng.randint(2, 4)
        for holder in holders:
            inputs[holder].append(f"h{k}")
    for k, legs in enumerate(inputs):
        if not legs:
            legs.append(f"h{k % indices}")
    output = [f"h{k}" for k in rng.sample(range(indices), 4)]
    return Network(f"made_hyper_{count}", inputs, output, sizes, "made",
                   f"random hypergraph, seed {seed}")


def made() -> list:
    wide = dataclasses.replace(random_regular(1000, 3, seed=1), sliceable=False)
    return [wide, lattice((12, 12)), lattice((5, 5, 5)),
            chain(100, seed=2), binary_tree(7), random_hyper(60, 90, seed=3)]


def dense(count, seed) -> Network:
    """For exact search: every pair of tensors shares an index with probability one half."""
    rng = random.Random(seed)
    edges = [pair for pair in itertools.combinations(range(count), 2)
             if pair[1] == pair[0] + 1 or rng.random() < 0.5]
    return from_edges(f"made_dense_{count}", count, edges, 2, f"dense graph, seed {seed}")


def choose(folder, only=()) -> list:
    networks = corpus(folder)
    if not networks:
        raise BenchError(f"no network files in {folder}")
    networks += made()
    unknown = set(only) - {network.name for network in networks}
    if unknown:
        raise BenchError(f"no network is named {', '.join(sorted(unknown))}")
    return [network for network in networks if not only or network.name in only]
