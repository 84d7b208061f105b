"""The runner: one data set, many measures, any number of projections."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from tenon import measure_ids
from tenon._measure_calls import distance_matrix
from tenon._measurement import MeasureStream
from tenon.client import Client, default_client
from tenon.errors import ExceedsBudget, InvalidRequest, Unsupported
from tenon.scores import Scores
from tenon.zadu import _checks
from tenon.zadu._config import ExecutionConfig, provider_of
from tenon.zadu._inputs import Kept, Source, collection
from tenon.zadu._run_info import RunInfo
from tenon.zadu._spec import (DEFAULT_K, DENSITIES, NEEDS_LABELS, Spec, checked_specs,
                              early_specs)

__all__ = ["ZADU", "EmbeddingExecutionError", "EmbeddingResult"]


class EmbeddingExecutionError(RuntimeError):
    """A projection of a collection could not be scored; the cause says why.

    Attributes:
      embedding_index: its place in the collection.
    """

    def __init__(self, embedding_index: int) -> None:
        super().__init__(f"projection {embedding_index} could not be scored")
        self.embedding_index = embedding_index


@dataclasses.dataclass(frozen=True)
class EmbeddingResult:
    """One item of `ZADU.iter_measure_many`.

    Attributes:
      index: its place in the collection.
      result: what `ZADU.measure` returns for it.
      run_info: the record of it.
    """

    index: int
    result: Any
    run_info: dict[str, Any]


class ZADU:
    """Measures projections of one data set.

    Args:
      spec_list: dicts with ``id`` (id, alias or `MEASURE`) and ``params``.
      orig: the data set, n rows; copied.
      return_local: the scores of every row too, for the measures that have them.
      verbose: prints the measures of each call.
      geodesic: great-circle distances between longitude and latitude, in radians.
      max_memory_bytes: an older name for ``execution.memory_budget``.
      execution: an `ExecutionConfig`.
      client: the server to use (default: `tenon.default_client`).

    The data set is kept on the server, where what belongs to it alone is built at once; parameters
    that need no projection are checked at once, too.

    Attributes:
      last_run_info: the record of the last call that succeeded, or None.

    Raises:
      ValueError, TypeError: the data set, the measures or their parameters are wrong.
      MemoryError: the budget can't hold even the smallest plan.
    """

    ABBREVIATIONS: ClassVar[dict[str, str]] = dict(measure_ids.ALIASES)
    DEFAULT_K = DEFAULT_K

    def __init__(self, spec_list: Any, orig: Any, return_local: bool = False,
                 verbose: bool = False, geodesic: bool = False,
                 max_memory_bytes: int | None = None, execution: ExecutionConfig | None = None, *,
                 client: Client | None = None) -> None:
        self.execution = _execution(execution, max_memory_bytes)
        self.max_memory_bytes = self.execution.memory_budget_bytes
        self.return_local, self.verbose = bool(return_local), bool(verbose)
        self.geodesic = bool(geodesic)
        self.orig = np.array(_checks.matrix(orig, "orig"), copy=True)
        self.orig.flags.writeable = False
        self.spec_list: list[Spec] = checked_specs(spec_list, len(self.orig))
        self.emb: np.ndarray | None = None
        self.label: Any = None
        self.last_run_info: dict[str, Any] | None = None
        self._client = client if client is not None else default_client()
        self._provider = provider_of(self.execution, self._client.provider_is_ready)
        self._kept = Kept(self._client.datasets, self.orig)
        self._matrices: dict[Callable[..., Any], Kept] = {}
        self.estimated_cache_bytes = self._prepare()

    def measure(self, emb: Any, label: Any = None) -> Any:
        """The scores of one projection.

        Args:
          emb: the projection, n rows.
          label: the class of each row, for the measures that need it.

        Returns:
          One dict per measure, in order of the specs; with ``return_local`` a pair of that and of
          one dict of arrays, or None, per measure.

        Raises:
          ValueError, TypeError: the projection or the labels are wrong, or a score has no value.
        """
        array = _checks.matrix(emb, "emb", len(self.orig))
        labels = self._checked_labels(label)
        self.last_run_info = None
        stream = self._start([array], labels, in_flight=1)
        item, = list(stream)
        item.raise_for_error()
        self.emb, self.label = array, labels
        self.last_run_info = self._run_info(stream).single(item)
        return self._result(item)

    def measure_many(self, embeddings: Any, labels: Any = None) -> list[Any]:
        """The results of `measure` for every projection, in order.

        Args:
          embeddings: an iterable of projections.
          labels: the class of each row.

        Raises:
          ValueError, TypeError: a projection is wrong; all are looked at before any is measured.
          EmbeddingExecutionError: one could not be scored.
        """
        source = Source(collection(embeddings), len(self.orig))
        arrays = list(source)
        labels = self._checked_labels(labels)
        self.last_run_info = None
        workers = self.execution.embedding_workers
        stream = self._collection(arrays, labels, in_flight=workers if workers > 1 else None)
        results, runs = [], []
        for item in self._scored(stream, source):
            results.append(self._result(item))
            runs.append(self._run_info(stream).single(item))
        if arrays:
            self.emb, self.label = arrays[-1], labels
        assert stream.report is not None  # it has ended well
        self.last_run_info = self._run_info(stream).collection(
            "many", stream.report, count=len(results), consumed=len(arrays), runs=runs)
        return results

    def iter_measure_many(self, embeddings: Any, labels: Any = None) -> Iterator[EmbeddingResult]:
        """The results one by one, as the projections come: any iterable, also one without end.

        At most ``embedding_workers`` projections are read before their results are taken: 2 or more
        let the server work while the next projection is made. ``close()`` ends early: the server
        finishes what it has begun. `last_run_info` is there after the end or ``close()``.

        Args:
          embeddings: an iterable of projections.
          labels: the class of each row.

        Raises:
          ValueError, TypeError: a projection is wrong, when it is read.
          EmbeddingExecutionError: one could not be scored.
        """
        source = Source(collection(embeddings), len(self.orig))
        labels = self._checked_labels(labels)
        self.last_run_info = None
        return self._iterate(source, labels)

    def _iterate(self, source: Source, labels: Any) -> Iterator[EmbeddingResult]:
        stream = self._collection(source, labels, in_flight=self.execution.embedding_workers)
        count = 0
        try:
            for item in self._scored(stream, source):
                self.emb, self.label = source.taken.pop(item.index), labels
                count += 1
                info = {"embedding_index": item.index, **self._run_info(stream).single(item)}
                yield EmbeddingResult(item.index, self._result(item), info)
        except GeneratorExit:
            stream.close()
            raise
        finally:
            stream.cancel()  # does nothing where it has ended
            source.close()
            if stream.report is not None:
                self.last_run_info = self._run_info(stream).collection(
                    "many_stream", stream.report, count=count, consumed=source.count)

    def _collection(self, projections: Any, labels: Any, in_flight: int | None) -> MeasureStream:
        try:
            return self._start(projections, labels, in_flight=in_flight)
        except (InvalidRequest, TypeError) as error:  # parameters that measuring looks at
            raise EmbeddingExecutionError(0) from error

    def _scored(self, stream: MeasureStream, source: Source) -> Iterator[Scores]:
        index = 0
        try:
            for item in stream:
                if item.error is not None:
                    raise EmbeddingExecutionError(item.index) from item.error
                yield item
                index += 1
        except (InvalidRequest, Unsupported, ExceedsBudget) as error:
            if source.broken:
                raise
            raise EmbeddingExecutionError(index) from error

    def _start(self, projections: Any, labels: Any, *, in_flight: int | None) -> MeasureStream:
        if self.verbose:
            print("measuring " + ", ".join(spec["id"] for spec in self.spec_list))
        return self._client.measure(
            self._kept.dataset, [self._sent(spec) for spec in self.spec_list], projections,
            labels=labels if self._needs_labels() else None, rng=self.execution.rng,
            in_flight=in_flight, return_local=self.return_local, geodesic=self.geodesic,
            **self.execution.measure_options(self._provider))

    def _sent(self, spec: Spec) -> tuple[str, dict[str, Any]]:
        """A spec whose distance function has become a matrix on the server."""
        function = spec["params"].get("metric")
        if not callable(function):
            return spec["id"], spec["params"]
        if function not in self._matrices:
            self._matrices[function] = Kept(self._client.datasets,
                                            distance_matrix(self.orig, function))
        return spec["id"], {"metric": "precomputed",
                            "precomputed_handle": self._matrices[function].dataset.handle}

    def _prepare(self) -> int:
        """Builds what belongs to the data set alone; returns the bytes that are planned to stay."""
        specs = early_specs(self.spec_list)
        try:
            stream = self._build(specs)
        except InvalidRequest as error:
            if error.reason != "UNDEFINED_SCORE":
                raise
            # Densities of coincident points fail at once, all other scores when they are asked for.
            stream = self._build([spec for spec in specs if spec[0] in DENSITIES])
        assert stream.accepted is not None  # it has ended well
        memory = stream.accepted.memory
        return memory.original_bytes + memory.per_projection_bytes

    def _build(self, specs: list[tuple[str, dict[str, Any]]]) -> MeasureStream:
        stream = self._client.measure(
            self._kept.dataset, specs, [], geodesic=self.geodesic, return_local=self.return_local,
            **self.execution.measure_options(self._provider))
        list(stream)
        return stream

    def _needs_labels(self) -> bool:
        return any(spec["id"] in NEEDS_LABELS for spec in self.spec_list)

    def _checked_labels(self, labels: Any) -> Any:
        if not self._needs_labels():
            return labels
        if labels is None:
            raise InvalidRequest("labels are needed by " + ", ".join(
                spec["id"] for spec in self.spec_list if spec["id"] in NEEDS_LABELS),
                reason="LABELS_REQUIRED", field="label")
        return _checks.labels(labels, len(self.orig))

    def _result(self, item: Scores) -> Any:
        return (item.values, item.local) if self.return_local else item.values

    def _run_info(self, stream: MeasureStream) -> RunInfo:
        return RunInfo(self.execution, self._provider, [spec["id"] for spec in self.spec_list],
                       stream.accepted)


def _execution(execution: Any, max_memory_bytes: Any) -> ExecutionConfig:
    if execution is not None and not isinstance(execution, ExecutionConfig):
        raise TypeError(f"execution is an ExecutionConfig, not {type(execution).__name__}")
    config = execution or ExecutionConfig()
    if max_memory_bytes is None:
        return config
    if isinstance(max_memory_bytes, bool) or not isinstance(max_memory_bytes, Integral):
        raise TypeError(f"max_memory_bytes is an integer, not {type(max_memory_bytes).__name__}")
    if config.memory_budget is not None:
        raise InvalidRequest("max_memory_bytes and execution.memory_budget are given; one of them "
                             "is enough", reason="BAD_PARAMETER", field="max_memory_bytes")
    return dataclasses.replace(config, memory_budget=int(max_memory_bytes))
