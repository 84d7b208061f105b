"""The client: contraction and planning, on arrays of any library."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon import _contraction, _measure_calls, plans
from tenon._connection import Connection, frames
from tenon._measurement import MeasureStream
from tenon._sizes import parse_bytes
from tenon.datasets import Datasets
from tenon.errors import InvalidRequest
from tenon.plans import Plan
from tenon.reports import ContractionReport
from tenon.v1 import (contraction_pb2, execution_pb2, measure_info_pb2, measurement_pb2, plan_pb2,
                      provider_pb2)

__all__ = ["Client", "default_client", "parse_bytes", "set_default_client"]


class Client:
    """A connection to a Tenon server. Thread-safe; a context manager that closes it.

    Without an address, and without TENON_SERVER in the environment, a private server is started on
    a Unix socket and stopped with the client, or with the process.

    Args:
      address: "host:port" or "unix:/path".
      tenond: the program of the private server (default: TENON_TENOND, or ``tenond`` on PATH).
      flags: further flags of the private server, for example ``["--memory_budget=8GiB"]``.
      token: goes with every call; to other machines only with tls.
      tls, tls_ca, tls_cert, tls_key, tls_server_name: encryption, as in the C++ client.
      timeout: seconds that calls may take which name none; streams of projections may take longer.
    """

    def __init__(self, address: str | None = None, *, tenond: str | os.PathLike[str] | None = None,
                 flags: Sequence[str] = (), token: str | None = None, tls: bool = False,
                 tls_ca: str | os.PathLike[str] | None = None,
                 tls_cert: str | os.PathLike[str] | None = None,
                 tls_key: str | os.PathLike[str] | None = None,
                 tls_server_name: str | None = None, timeout: float = 3600.0) -> None:
        self._connection = Connection(address, tenond=tenond, flags=flags, token=token, tls=tls,
                                      tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key,
                                      tls_server_name=tls_server_name)
        self._timeout = timeout

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def info(self) -> provider_pb2.GetServerInfoResponse:
        """What the server is and allows; asked once."""
        return self._connection.info()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        private = "private server at " if self._connection.local is not None else ""
        return f"Client({private}{self.address})"

    def einsum(self, subscripts: str, *operands: Any, return_info: bool = False,
               **options: Any) -> Any:
        """``numpy.einsum`` on the server: any number of operands, hyperedges included.

        Options are those of `contract`. "..." is not taken.
        """
        arrays = _contraction.prepare(operands)
        header = contraction_pb2.ContractHeader()
        header.einsum.subscripts = subscripts
        for _ in arrays:
            header.einsum.operands.add()
        return self._run(header, header.einsum.operands, arrays, return_info, options)

    def contract(self, inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable],
                 size_dict: Mapping[Hashable, int] | None, arrays: Sequence[Any], *,
                 return_info: bool = False, **options: Any) -> Any:
        """The sum over all indices that are not in `output` of the product of all arrays.

        Args:
          inputs: the indices of each array; anything hashable.
          output: the indices of the result.
          size_dict: size of each index; ``None``: from the arrays.
          arrays: NumPy arrays, or anything with DLPack or the buffer protocol.
          return_info: also return a `ContractionReport`.
          plan: a `Plan` to run along; or
          path, sliced: a path (linear; ``ssa=True``: single assignment) and sliced indices; or
          search options of `plan`: ``max_time``, ``max_trials``, ``target_size``, ...
          providers: who may compute, for example ``["cpu"]``.
          memory_budget: largest planned peak, in bytes or as "4GiB".
          threads, deterministic, normalize, priority, fingerprint: see the contract's
            ``ContractExecution``; with ``normalize`` the value is ``(array, log10_scale)``.
          dtype: element type of the result.
          timeout: seconds.
          on_progress: is called with messages ``ContractProgress``.

        Returns:
          The array; with ``return_info`` a pair of it and the report.
        """
        prepared = _contraction.prepare(arrays)
        header = contraction_pb2.ContractHeader(
            network=_contraction.network(inputs, output, size_dict))
        return self._run(header, header.network.operands, prepared, return_info, options)

    def plan(self, inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable],
             size_dict: Mapping[Hashable, int], *, dtype: Any = None,
             on_improvement: Callable[[contraction_pb2.PlanImprovement], None] | None = None,
             timeout: float | None = None, **options: Any) -> Plan:
        """Searches for a path and slices.

        Args:
          dtype: element type that memory and seconds are planned for (default complex128).
          on_improvement: is called with messages ``PlanImprovement`` as better plans are found.
          max_time: seconds; max_trials; seed: with trials alone the plan depends on the seed alone.
          target_size: largest number of elements that a step makes within one slice.
          memory_budget: largest planned peak, in bytes or as "4GiB".
          minimize: "weighted" (default, 1 : 64), "weighted-W", "flops", "write", "size", "seconds".
          allow_output_slicing, search_threads, cache ("use", "improve", "bypass").
        """
        request = contraction_pb2.PlanContractionRequest(
            network=_contraction.network(inputs, output, size_dict))
        if dtype is not None:
            request.default_dtype = _contraction.wire_type(dtype)
        _fill_execution(options, request.execution)
        _fill_search(options, request.search)
        _refuse_unknown(options)
        call = self._connection.stream(self._connection.contraction.PlanContraction, request,
                                       timeout or self._timeout)
        result = None
        for frame in frames(call):
            if frame.HasField("improvement") and on_improvement is not None:
                on_improvement(frame.improvement)
            elif frame.HasField("plan"):
                result = frame.plan
        names = {str(name): name for part in inputs for name in part}
        return Plan(result.plan, len(inputs), names, result.planned_peak_bytes)

    def measure(self, data: Any, measures: Any, projections: Any = None, *, labels: Any = None,
                rng: str = "counter", on_error: str = "skip",
                on_progress: Callable[[measurement_pb2.MeasureProgress], None] | None = None,
                timeout: float | None = None, **options: Any) -> MeasureStream:
        """Scores projections of a data set, one by one and in order.

            for item in client.measure(data, ["tnc", ("snc", {"seed": 1})], projections):
                print(item.name, item["trustworthiness"])

        Args:
          data: the original space: a matrix of n rows, a kept `Dataset`, or its handle.
          measures: ids or aliases, ``(id, parameters)`` or ``{"id": ..., "params": ...}``;
            `measures` tells which there are. Parameters are those of the contract's
            ``measure_spec.proto``; ``random_state``, ``n_jobs`` and ``clustering_args`` are
            understood too, and a function of two rows as ``metric`` of the gap index.
          projections: an iterable of matrices of n rows, or of pairs of name and matrix; or a dict
            of matrices by name; or one matrix. It is read as results are, a few items ahead.
          labels: one number or text per row; for the measures that need them.
          rng: "counter" (the server's own) or "numpy" (the random numbers of zadu and NumPy).
          on_error: what a projection that can't be scored does: "skip" (its `Scores` carry the
            error), "skip_measure" (only the measures that failed carry one), "stop" (the last
            result is the error), or "raise".
          on_progress: is called with messages ``MeasureProgress``, every ``progress_interval``
            seconds (0.2).
          return_local: the score of every row too, for the measures that have it.
          geodesic: great-circle distances between longitude and latitude (radians) in the data set.
          providers: who builds what the measures share, for example "cpu"; ``allow_fallback``: the
            CPU may build what it can't.
          dtype: of distances, float64 (default) or float32.
          memory_budget, temporary_budget: largest planned peak of memory and of files, in bytes or
            as "4GiB"; temporary_directory, pair_order ("auto", "memory", "external").
          in_flight: projections read before their results are taken. Default: the server's choice.
          threads, batch, priority ("interactive", "default", "bulk"), max_queue (seconds).
          keep: the server keeps the data set, under the handle in the report.
          server_files, limit: in place of `projections`: a pattern of .npy files below the server's
            data root, and how many of them at most.
          expected: how many projections will come, a hint for planning.
          timeout: seconds for the whole stream. Default: none, since projections may take long to
            make.

        Returns:
          A `MeasureStream`, an iterator of `Scores`. Nothing is sent before its first ``next()``.

        Raises:
          InvalidRequest, TypeError: at once, for what the client can tell; `TenonError` from
            ``next()``, for what the server refuses.
        """
        return _measure_calls.start(self._connection, self.datasets, data, measures, projections,
                                    labels, rng=rng, on_error=on_error, on_progress=on_progress,
                                    timeout=timeout, options=options)

    def measures(self) -> list[measure_info_pb2.MeasureInfo]:
        """Every measure of this server: parameters, outputs, definition, publications."""
        return list(self._connection.unary(self._connection.measurement.ListMeasures,
                                           measurement_pb2.ListMeasuresRequest(),
                                           self._timeout).measures)

    def provider_is_ready(self, name: str) -> bool:
        """Whether the server has a provider of this name, with a device that works."""
        answer = self._connection.unary(self._connection.provider.ListProviders,
                                        provider_pb2.ListProvidersRequest(), self._timeout)
        return any(provider.name == name and provider.state == provider_pb2.PROVIDER_STATE_READY
                   for provider in answer.providers)

    @property
    def datasets(self) -> Datasets:
        """Data sets that the server keeps."""
        return Datasets(self._connection, self._timeout)

    def _run(self, header: contraction_pb2.ContractHeader, operands: Any,
             arrays: list[np.ndarray], return_info: bool, options: dict[str, Any]) -> Any:
        following = _contraction.add_operands(arrays, operands)
        timeout = options.pop("timeout", None) or self._timeout
        on_progress = options.pop("on_progress", None)
        if on_progress is not None:
            header.execution.progress_interval_seconds = options.pop("progress_interval", 0.2)
        dtype = options.pop("dtype", None)
        if dtype is not None:
            header.result.dtype = _contraction.wire_type(dtype)
        _fill_execution(options, header.execution)
        _fill_plan(options, header)
        _refuse_unknown(options)
        outcome = _contraction.run(self._connection, header, arrays, following, timeout=timeout,
                                   on_progress=on_progress)
        value: Any = outcome.value
        if header.execution.normalize:
            value = (value, outcome.log10_scale)
        return (value, ContractionReport(outcome.report)) if return_info else value


def _fill_execution(options: dict[str, Any], execution: contraction_pb2.ContractExecution) -> None:
    providers = options.pop("providers", None)
    if providers is not None:
        execution.providers.extend([providers] if isinstance(providers, str) else providers)
    budget = options.pop("memory_budget", None)
    if budget is not None:
        execution.memory_budget_bytes = parse_bytes(budget)
    for name in ("threads", "deterministic", "normalize"):
        value = options.pop(name, None)
        if value is not None:
            setattr(execution, name, value)
    execution.required_fingerprint = options.pop("fingerprint", None) or ""
    priority = options.pop("priority", None)
    if priority is not None:
        try:
            execution.priority = execution_pb2.PriorityClass.Value(
                "PRIORITY_CLASS_" + priority.upper())
        except ValueError:
            raise InvalidRequest(f"'{priority}' is no class; expected is interactive, default or "
                                 "bulk", field="execution.priority") from None


def _fill_plan(options: dict[str, Any], header: contraction_pb2.ContractHeader) -> None:
    plan, path = options.pop("plan", None), options.pop("path", None)
    sliced, ssa = options.pop("sliced", None) or (), options.pop("ssa", False)
    if plan is not None and path is not None:
        raise InvalidRequest("a plan and a path are given; one of them is enough", field="plan")
    if plan is not None:
        header.path.CopyFrom(plan.explicit())
    elif path is not None:
        header.path.CopyFrom(plans.explicit_plan(path, sliced, ssa=ssa))
    elif sliced:
        raise InvalidRequest("slices need a path", field="sliced")
    elif _asks_for_search(options):
        _fill_search(options, header.search)


_SEARCH_NAMES = ("max_time", "max_trials", "seed", "target_size", "minimize", "cache",
                 "allow_output_slicing", "search_threads")


def _asks_for_search(options: Mapping[str, Any]) -> bool:
    return any(options.get(name) is not None for name in _SEARCH_NAMES)


def _fill_search(options: dict[str, Any], search: plan_pb2.SearchOptions) -> None:
    given = {name: options.pop(name) for name in _SEARCH_NAMES if name in options}
    given = {name: value for name, value in given.items() if value is not None}
    for name, field in (("max_time", "max_time_seconds"), ("max_trials", "max_trials"),
                        ("seed", "seed"), ("target_size", "target_size"),
                        ("allow_output_slicing", "allow_output_slicing"),
                        ("search_threads", "threads")):
        if name in given:
            setattr(search, field, given[name])
    if "minimize" in given:
        plans.objective(given["minimize"], search)
    if "cache" in given:
        search.cache = plan_pb2.PlanCachePolicy.Value(
            "PLAN_CACHE_POLICY_" + given["cache"].upper())


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    if options:
        raise TypeError("unknown option" + ("s " if len(options) > 1 else " ")
                        + ", ".join(sorted(options)))


_default: Client | None = None
_default_lock = threading.Lock()


def default_client() -> Client:
    """The client of the module's own functions, made when it is first needed."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Client()
        return _default


def set_default_client(client: Client | None) -> None:
    """Another client for the module's own functions; the one before is not closed."""
    global _default
    with _default_lock:
        _default = client
