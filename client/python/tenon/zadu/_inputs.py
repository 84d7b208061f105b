"""What goes into a runner: the data set on the server, and the projections of a collection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tenon.datasets import Dataset, Datasets
from tenon.errors import NotFound
from tenon.zadu import _checks


class Kept:
    """An array that the server keeps, and gets again when it has expired there."""

    def __init__(self, datasets: Datasets, array: np.ndarray) -> None:
        self._datasets, self._array = datasets, array
        self._dataset: Dataset | None = None

    @property
    def dataset(self) -> Dataset:
        if self._dataset is not None:
            try:
                self._dataset.refresh()
                return self._dataset
            except NotFound:
                pass
        self._dataset = self._datasets.put(self._array)
        return self._dataset


def collection(embeddings: Any) -> Iterable[Any]:
    """What may be a collection of projections. TypeError, or ValueError for a single one."""
    if isinstance(embeddings, (str, bytes)) or not hasattr(embeddings, "__iter__"):
        raise TypeError(f"embeddings are an iterable of matrices, not {type(embeddings).__name__}")
    if isinstance(embeddings, np.ndarray) and embeddings.ndim == 2:
        raise ValueError("embeddings are several matrices; measure() takes a single one")
    return embeddings


class Source(Iterator[np.ndarray]):
    """Projections of a collection, checked as they are read.

    Attributes:
      count: how many were read.
      broken: whether an exception came out of it: one of its own, or for a wrong projection.
      taken: those that were read, by index, for who takes them out.
    """

    def __init__(self, embeddings: Iterable[Any], rows: int) -> None:
        self._iterator, self._rows = iter(embeddings), rows
        self.count = 0
        self.broken = False
        self.taken: dict[int, np.ndarray] = {}

    def __next__(self) -> np.ndarray:
        index = self.count
        try:
            value = next(self._iterator)
            self.count += 1
            self.taken[index] = _checks.matrix(value, f"embeddings[{index}]", self._rows)
        except StopIteration:
            raise
        except BaseException:
            self.broken = True
            raise
        return self.taken[index]

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
