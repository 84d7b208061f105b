"""Data sets that the server keeps, with what it has built from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenon import _arrays, errors
from tenon._connection import Connection
from tenon.errors import InvalidRequest
from tenon.v1 import dataset_pb2

__all__ = ["Dataset", "Datasets"]


def data_array(value: Any) -> np.ndarray:
    """A host array of a type that data sets and projections have on the wire.

    Half precision is widened, extended precision rounded to float64. InvalidRequest for what is no
    array (SHAPE_MISMATCH), or none of numbers (UNSUPPORTED_DTYPE).
    """
    try:
        array = _arrays.to_numpy(value)
    except ValueError as error:  # NumPy's word for rows of different lengths
        raise InvalidRequest(str(error), reason="SHAPE_MISMATCH") from None
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        array = array.astype(np.float32 if array.dtype.itemsize == 2 else np.float64)
    _arrays.wire_type(array.dtype)
    return array


class Dataset:
    """A kept data set. In a ``with`` statement it is deleted at the end.

    It expires when it has not been used for a while (``message.expire_time``).

    Attributes:
      handle: its name, "datasets/{sha256}".
      message: the message ``tenon.v1.Dataset`` of when it was looked up.
    """

    def __init__(self, datasets: Datasets, message: dataset_pb2.Dataset) -> None:
        self._datasets = datasets
        self.message = message
        self.handle = message.name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.message.spec.shape)

    @property
    def dtype(self) -> np.dtype:
        return _arrays.numpy_type(self.message.spec.dtype)

    def refresh(self) -> dataset_pb2.Dataset:
        """Asks the server again, for example which resources are warm."""
        self.message = self._datasets.get(self.handle).message
        return self.message

    def delete(self) -> int:
        """Forgets it; returns the bytes that became free."""
        return self._datasets.delete(self.handle)

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.delete()
        except errors.NotFound:
            pass  # it has expired, or was deleted inside

    def __repr__(self) -> str:
        return f"Dataset({self.handle}, {self.shape}, {self.dtype})"


class Datasets:
    """The data sets of one's own on a server: ``client.datasets``."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout

    def put(self, array: Any, *, name: str = "", ttl: float | None = None) -> Dataset:
        """Uploads a data set: n rows, d columns, finite. The same again only renews its time.

        Args:
          name: text for people.
          ttl: seconds to keep it after its last use; None: the server's default.
        """
        values = data_array(array)
        header = dataset_pb2.CreateDatasetHeader(spec=_arrays.spec_of(values), display_name=name)
        if ttl is not None:
            header.ttl_seconds = ttl
        following = values.nbytes >= _arrays.INLINE_BYTES
        if not following:
            header.inline_data = values.tobytes()

        def requests() -> Iterator[dataset_pb2.CreateDatasetRequest]:
            yield dataset_pb2.CreateDatasetRequest(header=header)
            for chunk in _arrays.chunks(values) if following else ():
                yield dataset_pb2.CreateDatasetRequest(chunk=chunk)

        answer = self._connection.upload(self._connection.datasets.CreateDataset, requests(),
                                         self._timeout)
        return Dataset(self, answer.dataset)

    def get(self, handle: str) -> Dataset:
        """Describes one. NotFound when it is not there, or belongs to somebody else."""
        request = dataset_pb2.GetDatasetRequest(name=handle)
        answer = self._connection.unary(self._connection.datasets.GetDataset, request,
                                        self._timeout)
        return Dataset(self, answer.dataset)

    def list_all(self) -> list[Dataset]:
        """All of them, the most recently used first."""
        found: list[Dataset] = []
        token = ""
        while True:
            page = self._connection.unary(
                self._connection.datasets.ListDatasets,
                dataset_pb2.ListDatasetsRequest(page_token=token), self._timeout)
            found.extend(Dataset(self, message) for message in page.datasets)
            token = page.next_page_token
            if not token:
                return found

    def delete(self, handle: str) -> int:
        """Forgets one and what was built from it; returns the bytes that became free."""
        request = dataset_pb2.DeleteDatasetRequest(name=handle)
        return self._connection.unary(self._connection.datasets.DeleteDataset, request,
                                      self._timeout).freed_bytes
