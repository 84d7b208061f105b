"""The client: contraction and planning, on arrays of any library."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenon import (_backends, _fields, _measure_calls, _networks, _questions, _streams, _tasks,
                   expressions)
from tenon._connection import Connection, frames
from tenon._contraction import Question
from tenon._endpoint import Endpoint
from tenon._measurement import MeasureStream
from tenon._networks import Network
from tenon._sizes import parse_bytes
from tenon.datasets import Datasets
from tenon.expressions import ContractExpression, Spec
from tenon.plans import Plan
from tenon.shared_memory import SharedMemory
from tenon.v1 import contraction_pb2, measure_info_pb2, measurement_pb2, provider_pb2

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
      shared_memory: size of a pool, as "1GiB" (True: that), that is shared with a server on the
        same host. Operands and results of contractions of 64 KiB and more lie there instead of being
        sent; results until they are collected. Where that can't be, they are sent, and
        `shared_memory_reason` says why.
    """

    def __init__(self, address: str | None = None, *, tenond: str | os.PathLike[str] | None = None,
                 flags: Sequence[str] = (), token: str | None = None, tls: bool = False,
                 tls_ca: str | os.PathLike[str] | None = None,
                 tls_cert: str | os.PathLike[str] | None = None,
                 tls_key: str | os.PathLike[str] | None = None,
                 tls_server_name: str | None = None, timeout: float = 3600.0,
                 shared_memory: int | str | bool | None = None) -> None:
        self._connection = Connection(Endpoint(
            address, tenond=tenond, flags=flags, token=token, tls=tls, tls_ca=tls_ca,
            tls_cert=tls_cert, tls_key=tls_key, tls_server_name=tls_server_name,
            shared_memory=shared_memory))
        self._timeout = timeout

    @property
    def address(self) -> str:
        """Where the server is: "host:port" or "unix:/path"."""
        return self._connection.address

    @property
    def info(self) -> provider_pb2.GetServerInfoResponse:
        """What the server is and allows; asked once."""
        return self._connection.info()

    @property
    def shared_memory(self) -> SharedMemory | None:
        """The pool, for arrays of one's own (``empty``); None: see `shared_memory_reason`."""
        sharing = self._connection.sharing
        return sharing.open(self.info) if sharing is not None else None

    @property
    def shared_memory_reason(self) -> str | None:
        """Why tensors are sent; None: they lie in shared memory."""
        sharing = self._connection.sharing
        return sharing.reason if sharing is not None else "it was not asked for"

    def close(self) -> None:
        """Closes the connection, and stops a private server."""
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

        Args:
          subscripts: the text, for example "ab,bc->ac"; "..." is not taken.
          operands: the arrays, in its order.
          return_info, options: as for `contract`.
        """
        if _backends.is_native(options.get("backend")):
            options.pop("backend", None)
            return self._do(_questions.einsum(subscripts, operands, options, timeout=self._timeout,
                                              return_info=return_info))
        return self.contract(*_networks.parse(subscripts), None, operands, return_info=return_info,
                             **options)

    def contract(self, inputs: Sequence[Sequence[Hashable]] | Any,
                 output: Sequence[Hashable] | None = None,
                 size_dict: Mapping[Hashable, int] | None = None,
                 arrays: Sequence[Any] | None = None, **options: Any) -> Any:
        """The sum over all indices that are not in `output` of the product of all arrays.

        Args:
          inputs: the indices of each array, anything hashable; or a quimb ``TensorNetwork``, which
            brings its own sizes and arrays. Then the result is what its ``contract`` gives: a
            number or a ``Tensor``, ``tn.exponent`` included; ``output_inds`` is another word for `output`,
            and ``preserve_tensor`` and ``drop_tags`` are understood.
          output: the indices of the result; ``None``: those that stand once.
          size_dict: size of each index; ``None``: from the arrays.
          arrays: NumPy arrays, or anything with DLPack or the buffer protocol.
          return_info: also return a `ContractionReport`.
          options: any of the following.
          plan: a `Plan` to run along; or
          path, sliced: a path (linear; ``ssa=True``: single assignment) and sliced indices; or
          optimize: what opt_einsum and cotengra take: a path, a ``ContractionTree``, an optimizer,
            "auto", "greedy", "random-greedy", "optimal"; or
          search options of `plan`: ``max_time``, ``max_trials``, ``target_size``, ...
          providers: who may compute, for example ``["cpu"]``.
          memory_budget: largest planned peak, in bytes or as "4GiB".
          threads, deterministic, normalize, priority, fingerprint: see the contract's
            ``ContractExecution``; with ``normalize`` (or ``strip_exponent``) the value is
            ``(array, log10_scale)``.
          dtype: element type of the result.
          detail: of the report: "brief", "full" (default), or "timeline": with the time span of
            every slice group.
          timeout: seconds.
          on_progress: is called with messages ``ContractProgress``.
          backend: "numpy", "torch", "cupy" or "jax": only the plan comes from the server; that
            library computes on the client, its arrays stay on their device, and so does the result.
            Never chosen by itself, and never given up for another. With ``return_info`` the second
            value is a dictionary then; for libraries that only queue the work its
            ``execution_wall_s`` is None. "native": the server.

        Returns:
          The array; with ``return_info`` a pair of it and the report.
        """
        return self._do(_tasks.contract(inputs, output, size_dict, arrays, options,
                                        timeout=self._timeout))

    def contract_tree(self, tree: Any, arrays: Sequence[Any], **options: Any) -> Any:
        """Runs a cotengra ``ContractionTree`` with its slices; arrays as for ``tree.contract``.

        The options are those of `contract`, without paths and plans.
        """
        return self._do(_tasks.contract_tree(tree, arrays, options, timeout=self._timeout))

    def plan(self, inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable] | None,
             size_dict: Mapping[Hashable, int], *, dtype: Any = None,
             on_improvement: Callable[[contraction_pb2.PlanImprovement], None] | None = None,
             timeout: float | None = None, **options: Any) -> Plan:
        """Searches for a path and slices.

        Args:
          inputs, output, size_dict: the network, as for `contract`; every index has a size.
          options: of the search and of execution, namely those below from ``max_time`` on.
          dtype: element type that memory and seconds are planned for (default complex128).
          on_improvement: is called with messages ``PlanImprovement`` as better plans are found.
          max_time: seconds; max_trials; seed: with trials alone the plan depends on the seed alone.
          target_size: largest number of elements that a step makes within one slice.
          memory_budget: largest planned peak, in bytes or as "4GiB".
          minimize: "weighted" (default, 1 : 64), "weighted-W", "flops", "write", "size", "seconds".
          methods: of the search, for example ``["greedy"]``; slicing: "none", "fixed_tree",
            "dynamic" or "annealed".
          allow_output_slicing, search_threads, cache ("use", "improve", "bypass").
        """
        network = _questions.network_of(inputs, output, size_dict)
        return self._search(network, _questions.plan_request(network, dtype, options),
                            timeout or self._timeout, on_improvement)

    def tree(self, inputs: Sequence[Sequence[Hashable]], output: Sequence[Hashable] | None,
             size_dict: Mapping[Hashable, int], *, return_info: bool = False,
             **options: Any) -> Any:
        """A cotengra ``ContractionTree`` with path and slices.

        With `return_info` also a dictionary of path, costs and slices. `inputs`, `output`,
        `size_dict` and the options are those of `plan`.
        """
        plan = self.plan(inputs, output, size_dict, **options)
        return (plan.tree(), _fields.tree_fields(plan, options)) if return_info else plan.tree()

    def contract_expression(self, subscripts: Any, *shapes: Any, constants: Any = None,
                            output: Sequence[Hashable] | None = None, streams: int = 1,
                            **options: Any) -> ContractExpression:
        """A contraction that is planned once and called with arrays, as in opt_einsum.

            expr = client.contract_expression("ab,bc->ac", a, (5, 6), constants=[0])
            c = expr(b)

        Args:
          subscripts: an einsum text; or the indices of each operand, with `output`; or opt_einsum's
            interleaved form.
          shapes: the shape of each operand; the array itself where it is constant.
          constants: the places of constant operands among `shapes`, or a dictionary of arrays by
            place. They go to the server once.
          streams: calls that are kept open for threads at the same time; constants go once on each.
          options: of `contract`, as far as they concern plan and execution. ``optimize`` and
            ``memory_limit`` are opt_einsum's. ``timeout``: seconds of each call, default none.

        Returns:
          A `ContractExpression`: call it, ``map`` it over many sets, close it.
        """
        spec = Spec(subscripts, shapes, constants, output, options)
        if spec.request is not None:
            spec.plan = self._search(spec.network, spec.request, self._timeout, None)
        return ContractExpression(self._connection, spec, streams)

    def contract_many(self, subscripts: Any, sets: Iterable[Sequence[Any]], *,
                      output: Sequence[Hashable] | None = None,
                      constants: Mapping[int, Any] | None = None, **options: Any) -> Iterator[Any]:
        """One contraction of many sets of operands, in one call.

            for value in client.contract_many("ab,b->a", pairs): ...

        Args:
          subscripts, output: as for `contract_expression`.
          sets: the operands of each set that are not constant, in their order. Read as results are
            taken, a few sets ahead. A sequence (anything with a length) may be computed together.
          constants: constant operands by place.
          options: those of `contract_expression`.

        Returns:
          An iterator of arrays in the order of the sets. Closing it cancels the call.
        """
        return expressions.contract_many(self, subscripts, sets, constants or {}, output, options)

    def _do(self, task: _tasks.Task) -> Any:
        if isinstance(task, Question):
            return _streams.run(self._connection, task)
        if task.header is not None:
            request = contraction_pb2.EstimateRequest(header=task.header)
            estimate = self._connection.unary(self._connection.contraction.Estimate, request,
                                              task.timeout)
            return task.run(task.estimated(estimate))
        return task.run(self._search(task.network, task.request, task.timeout, None))

    def _search(self, network: Network, request: Any, timeout: float,
                on_improvement: Callable[[Any], None] | None) -> Plan:
        answer = _questions.PlanAnswer(network, on_improvement)
        call = self._connection.stream(self._connection.contraction.PlanContraction, request,
                                       timeout)
        for frame in frames(call):
            answer.take(frame)
        return answer.plan()

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
          options: any of the following.
          return_local: the score of every row too, for the measures that have it.
          geodesic: great-circle distances between longitude and latitude (radians) in the data set.
          providers: who builds what the measures share, for example "cpu"; ``allow_fallback``: the
            CPU may build what it can't.
          dtype: of distances, float64 (default) or float32.
          memory_budget, temporary_budget: largest planned peak of memory and of files, in bytes or
            as "4GiB"; temporary_directory, pair_order ("auto", "memory", "external").
          in_flight: projections read before their results are taken. Default: the server's choice.
          threads, batch, priority ("interactive", "default", "bulk"), max_queue (seconds).
          detail: of the report: "brief", "full" (default), or "timeline": with the time span of
            every projection.
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
