"""What the benchmark of the measures runs: measures, data and targets.

Imported by both ends, Tenon's client and the peers' processes, so that they make the same data.
"""

import dataclasses
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
MIB = 1 << 20
NEIGHBORS, SIGMA, CLASSES = 20, 0.1, 10
SUITE = ("tnc", "mrre", "lcmc", "stress", "srho")
# What zadu and Tenon are told about each measure; the others have no parameters here.
_PARAMETERS = {
    **{alias: {"k": NEIGHBORS}
       for alias in ("tnc", "mrre", "lcmc", "nd", "ca_tnc", "proc", "topo")},
    "kl_div": {"sigma": SIGMA}, "dtm": {"sigma": SIGMA},
}
RANDOMISED = ("snc",)


def parameters(alias):
    return dict(_PARAMETERS.get(alias, {}))


@dataclasses.dataclass(frozen=True)
class Tenon:
    """One way that the server is asked: its budget, and the ratio to reach under it.

    `memory_limit` is what the server's resident set may grow by above its inputs; the request's
    budget is the same number.
    """
    ratio: float
    memory_limit: int | None = None

    @property
    def name(self):
        return f"{self.memory_limit // MIB} MiB" if self.memory_limit else "no budget"


@dataclasses.dataclass(frozen=True)
class Case:
    """Measures of one projection of n rows, `columns` wide before and 2 after."""
    name: str
    measures: tuple
    rows: int = 5000
    tenon: tuple = (Tenon(ratio=10),)
    peers: tuple = ("zadu",)
    floor: float | None = None  # at most so many times both distance matrices alone
    columns: int = 50

    @property
    def labels(self):
        return "ca_tnc" in self.measures


def _single(alias, ratio, **fields):
    return Case(alias, (alias,), tenon=(Tenon(ratio),), **fields)


_LIMIT_10000 = 1638 * MIB  # 1.6 GiB

CASES = (
    _single("tnc", 30), _single("mrre", 30), _single("ca_tnc", 30),
    Case("suite", SUITE, tenon=(Tenon(20, 500 * MIB), Tenon(12, 300 * MIB))),
    _single("srho", 10), _single("nm_stress", 10),
    _single("stress", 6), _single("pr", 6), _single("sn_stress", 6),
    *(_single(alias, 10) for alias in ("kl_div", "dtm", "lcmc", "nd", "topo", "proc", "snc")),
    Case("tnc_10000", ("tnc",), 10000, (Tenon(40),), peers=("zadu", "sklearn"), floor=2.5),
    Case("srho_10000", ("srho",), 10000, (Tenon(10, _LIMIT_10000),)),
    Case("nm_stress_10000", ("nm_stress",), 10000, (Tenon(10, _LIMIT_10000),)),
)


def normal_data(rows, columns):
    """(data set, projection, labels): normal, its first two columns with noise, random classes."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(rows, columns))
    projection = data[:, :2] + 0.5 * rng.normal(size=(rows, 2))
    return data, projection, rng.integers(0, CLASSES, rows)


def digits(count):
    """The digits data set and `count` projections of it: those of the corpus, with noise."""
    folder = ROOT / "tests" / "data" / "digits"
    data = np.load(folder / "digits_hd.npy")
    bases = [np.load(folder / f"digits_{name}.npy")
             for name in ("isomap", "lle", "mds", "pca", "random", "tsne")]
    rng = np.random.default_rng(0)
    projections = []
    for number in range(count):
        base = bases[number % len(bases)].astype(np.float64)
        noise = 0.01 * (number // len(bases)) * base.std() * rng.normal(size=base.shape)
        projections.append(base + noise)
    return data, projections
