"""Contractions that are planned once and called with arrays."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenon import _backends, _expression_spec, _streams
from tenon._connection import Connection
from tenon._contraction import Question, Result
from tenon._expression_spec import Spec
from tenon._streams import Stream
from tenon.errors import Cancelled, DeadlineExceeded, TenonError
from tenon.plans import Plan

__all__ = ["ContractExpression"]

_END = object()


class ContractExpression:
    """A compiled contraction: ``expr(*arrays)`` computes it, with one message each way when small.

    Thread-safe. The call to the server stays open, so that constants are there already; the program
    is pinned: all calls with the same element types give the same bits for the same arrays, or fail
    with FINGERPRINT_MISMATCH after the server has changed. A context manager that closes it. Made
    by `Client.contract_expression`.

    Args:
      connection: to the server.
      spec: what is contracted, and along which plan.
      streams: how many calls to the server may stay open.

    Attributes:
      plan: the `Plan`, or None when the caller gave a path.
    """

    def __init__(self, connection: Connection, spec: Spec, streams: int) -> None:
        self._connection, self._spec = connection, spec
        self._kept = _expression_spec.Kept(streams)
        self._slots = threading.BoundedSemaphore(streams)
        self._lock = threading.Lock()

    @property
    def plan(self) -> Plan | None:
        """The plan, or None when the caller gave a path."""
        return self._spec.plan

    def __call__(self, *arrays: Any, out: np.ndarray | None = None,
                 backend: str | None = None) -> Any:
        """The contraction of these arrays and the constants.

        Args:
          arrays: those that are not constant, in the order and of the shapes that were declared.
          out: takes the result.
          backend: a library of the client computes, as for `Client.contract`.

        Raises:
          InvalidRequest: another number of arrays, or other shapes.
        """
        if not _backends.is_native(backend):
            return self._spec.local(str(backend), arrays, out)
        prepared = self._spec.prepare(arrays)
        with self._slots:
            question, result = self._serve(prepared)
        return _expression_spec.put_into(question.finish(result), out)

    def map(self, sets: Iterable[Any], *, expected: int | None = None,
            in_flight: int | None = None) -> Iterator[Any]:
        """The results of many sets, in their order, in one call.

        Args:
          sets: sequences of arrays as for a call, or single arrays where only one varies. Read as
            results are taken, at most `in_flight` sets ahead.
          expected: how many will come. The server may then compute sets together, which is faster,
            but gives other bits than single calls.

        Returns:
          An iterator. Closing it cancels the call on the server.
        """
        self._kept.check_open()
        return _many(self._connection, self._spec, sets, expected, in_flight)

    def close(self) -> None:
        """Ends the calls that are kept open; those that run are not disturbed."""
        with self._lock:
            idle = self._kept.close()
        for stream in idle:
            stream.close()

    def __enter__(self) -> ContractExpression:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._spec)

    def _serve(self, arrays: list[np.ndarray]) -> tuple[Question, Result]:
        dtypes = tuple(array.dtype for array in arrays)
        with self._lock:
            kept, surplus = self._kept.take(dtypes)
        for stream in surplus:
            stream.close()
        if kept is not None:
            try:
                return self._ask(dtypes, *kept, arrays)
            except TenonError as error:
                if not _expression_spec.is_stale(error):
                    raise
        question = _streams.share(self._connection, self._spec.question(dtypes))
        return self._ask(dtypes, question, Stream(self._connection, question), arrays)

    def _ask(self, dtypes: tuple[np.dtype, ...], question: Question, stream: Stream,
             arrays: list[np.ndarray]) -> tuple[Question, Result]:
        try:
            with _deadline(stream, self._spec.timeout):
                stream.submit(arrays)
                result = stream.result()
                self._spec.pin(dtypes, stream.accepted)
        except BaseException:
            stream.close()
            raise
        with self._lock:
            kept = self._kept.put(dtypes, question, stream)
        if not kept:
            stream.close()
        return question, result


@contextlib.contextmanager
def _deadline(stream: Stream, seconds: float | None) -> Iterator[None]:
    """Cancels the stream when the time is over."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, stream.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Cancelled:
        raise DeadlineExceeded(f"no result within {seconds:g} s", reason="DEADLINE") from None
    finally:
        timer.cancel()


def _many(connection: Connection, spec: Spec, sets: Iterable[Any], expected: int | None,
          in_flight: int | None) -> Iterator[Any]:
    """Keeps the server busy with as many sets as it computes together, and as many behind them."""
    items = iter(sets)
    first = next(items, _END)
    if first is _END:
        return
    dtypes = [array.dtype for array in spec.prepare(spec.one_set(first))]
    question = _streams.share(connection, spec.question(dtypes, expected=expected))
    with Stream(connection, question, spec.timeout) as stream:
        window = in_flight or max(2, 2 * stream.accepted.sets_together)
        waiting, left = 0, itertools.chain([first], items)
        while True:
            while left is not None and waiting < window:
                item = next(left, _END)
                if item is _END:
                    left = None
                    stream.finish()
                else:
                    stream.submit(spec.prepare(spec.one_set(item), dtypes))
                    waiting += 1
            if waiting == 0:
                break
            result = stream.result()
            waiting -= 1
            yield question.finish(result)
        stream.report()


def contract_many(client: Any, subscripts: Any, sets: Iterable[Any], constants: Mapping[int, Any],
                  output: Sequence[Hashable] | None, options: dict[str, Any]) -> Iterator[Any]:
    """`Client.contract_many`: the shapes are those of the first set."""
    items = iter(sets)
    first = next(items, _END)
    if first is _END:
        return
    expression = client.contract_expression(
        subscripts, *_expression_spec.operands(subscripts, first, constants), output=output,
        constants=constants, **options)
    yield from expression.map(itertools.chain([first], items),
                              expected=_expression_spec.expected_sets(sets))
