"""Tenon's side: servers on a Unix socket, called through generated stubs."""

import contextlib
import os
import pathlib
import queue
import statistics
import sys
import tempfile
import time

import grpc
import numpy as np

import cases
from corpus import BenchError
from load import ForeignLoad, own_seconds
from peer import reset_high_water, status_bytes
from peers import environment

sys.path.insert(0, str(cases.ROOT / "tests" / "python"))
import tenond  # noqa: E402

_CHUNK = 1 << 20
_INLINE = 65536
_TIMEOUT_SECONDS = 1800
# Field of MeasureSpec that holds the parameters of a measure.
_FIELDS = {
    "tnc": "trustworthiness_continuity", "mrre": "mean_relative_rank_error",
    "lcmc": "local_continuity_meta_criteria", "nd": "neighbor_dissimilarity",
    "ca_tnc": "class_aware_trustworthiness_continuity", "proc": "procrustes",
    "snc": "steadiness_cohesiveness", "kl_div": "kl_divergence", "dtm": "distance_to_measure",
    "topo": "topographic_product",
}


class Server:
    """A server of one binary on a Unix socket of its own. Use as a context manager."""

    def __init__(self, service, threads):
        self._service, self.threads = service, threads
        self.stubs = service.stubs
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        socket = f"unix:{folder}/tenond.sock"
        self._tenond = tenond.Tenond(self._service.binary, folder, f"--listen={socket}",
                                     f"--threads={self.threads}", env=environment(self.threads))
        self._stack.callback(self._tenond.stop)
        info = self._tenond.wait_until_ready(self.stubs)
        self.version = info.version
        self.pid = self._tenond.process.pid
        self._channel = self._stack.enter_context(grpc.insecure_channel(socket))
        self._measurement = self.stubs.measurement_pb2_grpc.MeasurementServiceStub(self._channel)
        return self

    def __exit__(self, *error):
        self._stack.close()

    def spec_of(self, array):
        dtype = getattr(self.stubs.tensor_pb2, "DATA_TYPE_" + array.dtype.name.upper())
        return self.stubs.tensor_pb2.TensorSpec(dtype=dtype, shape=array.shape)

    def _chunks(self, array, number=0):
        data = memoryview(np.ascontiguousarray(array)).cast("B")
        for offset in range(0, len(data), _CHUNK):
            yield self.stubs.tensor_pb2.TensorChunk(set=number, offset_bytes=offset,
                                                    data=bytes(data[offset:offset + _CHUNK]))

    def upload(self, data):
        """Stores a data set; returns its handle."""
        pb = self.stubs.dataset_pb2

        def frames():
            header = pb.CreateDatasetHeader(spec=self.spec_of(data))
            if data.nbytes < _INLINE:
                header.inline_data = data.tobytes()
            yield pb.CreateDatasetRequest(header=header)
            for chunk in self._chunks(data) if data.nbytes >= _INLINE else ():
                yield pb.CreateDatasetRequest(chunk=chunk)

        stub = self.stubs.dataset_pb2_grpc.DatasetServiceStub(self._channel)
        return stub.CreateDataset(frames(), timeout=600).dataset.name

    def header(self, measures, *, handle=None, data=None, labels=None, budget=None, expected=None,
               in_flight=None, seed=0, local=False):
        """The first message of a call: the data set is stored (`handle`) or follows (`data`).

        Nothing that the call builds of the original space is kept.
        """
        pb = self.stubs.measurement_pb2
        header = pb.MeasureHeader(specs=[self._spec(alias, seed) for alias in measures],
                                  return_local=local)
        header.client_stream.SetInParent()
        if expected:
            header.client_stream.expected_projections = expected
        if handle:
            header.dataset_handle = handle
        else:
            header.dataset_input.spec.CopyFrom(self.spec_of(data))
        if labels is not None:
            header.labels.int64s.values.extend(labels.tolist())
        execution = header.execution
        execution.threads, execution.keep_resources = self.threads, False
        if budget:
            execution.memory_budget_bytes = budget
        if in_flight:
            execution.in_flight = in_flight
        header.result.report_detail = self.stubs.execution_pb2.REPORT_DETAIL_FULL
        return header

    def _spec(self, alias, seed):
        spec = self.stubs.measure_spec_pb2.MeasureSpec(id=alias)
        if alias in _FIELDS:
            fields = getattr(spec, _FIELDS[alias])
            fields.SetInParent()
            for name, value in cases.parameters(alias).items():
                setattr(fields, name, value)
            if alias in cases.RANDOMISED:
                fields.random.seed = seed
        return spec

    def dataset_frames(self, data):
        for chunk in self._chunks(data):
            yield self.stubs.measurement_pb2.MeasureRequest(dataset_chunk=chunk)

    def projection_frames(self, number, array):
        pb = self.stubs.measurement_pb2
        message = pb.Projection(index=number, spec=self.spec_of(array))
        if array.nbytes < _INLINE:
            message.inline_data = np.ascontiguousarray(array).tobytes()
        yield pb.MeasureRequest(projection=message)
        for chunk in self._chunks(array, number) if array.nbytes >= _INLINE else ():
            yield pb.MeasureRequest(projection_chunk=chunk)

    def measure(self, header, data, projections):
        """One call. Projections are sent as fast as the server takes them."""
        pb = self.stubs.measurement_pb2

        def frames():
            yield pb.MeasureRequest(header=header)
            yield from self.dataset_frames(data) if data is not None else ()
            for number, projection in enumerate(projections):
                yield from self.projection_frames(number, projection)

        return self.call(frames())

    def measure_one_by_one(self, header, data, projections):
        """One call in which each projection is sent when the one before is answered."""
        pb, answered = self.stubs.measurement_pb2, queue.SimpleQueue()

        def frames():
            yield pb.MeasureRequest(header=header)
            yield from self.dataset_frames(data) if data is not None else ()
            for number, projection in enumerate(projections):
                yield from self.projection_frames(number, projection)
                answered.get()

        return self.call(frames(), answered)

    def measure_inline(self, header, projection):
        """One frame each way: a stored data set and a small projection."""
        message = header.inline_projections.projections.add(index=0)
        message.spec.CopyFrom(self.spec_of(projection))
        message.inline_data = np.ascontiguousarray(projection).tobytes()
        return self.call(iter([self.stubs.measurement_pb2.MeasureRequest(header=header)]))

    def call(self, frames, answered=None):
        answer, start = Answer(), time.perf_counter()
        try:
            for frame in self._measurement.Measure(frames, timeout=_TIMEOUT_SECONDS):
                answer.take(frame, time.perf_counter() - start)
                if answered is not None and frame.WhichOneof("frame") in ("scores", "item_error"):
                    answered.put(None)
        except grpc.RpcError as error:
            raise BenchError(f"Measure: {error.code()} {error.details()}")
        answer.seconds = time.perf_counter() - start
        return answer

    def reset_cpu(self):
        self._cpu_start = own_seconds(self.pid)

    def cpu_seconds(self):
        """Of the server's processors together since reset_cpu, in steps of 10 ms."""
        return own_seconds(self.pid) - self._cpu_start

    @contextlib.contextmanager
    def resident(self, figures):
        """Sets "memory" in `figures`: what the server holds before, and at its peak inside."""
        before, reset = status_bytes("VmRSS", self.pid), reset_high_water(self.pid)
        yield
        figures["memory"] = {"inputs_bytes": before, "peak_bytes": status_bytes("VmHWM", self.pid),
                             "high_water_reset": reset}

    @contextlib.contextmanager
    def load(self, figures):
        """Sets "load" in `figures`: processors that others took meanwhile."""
        load = ForeignLoad([self.pid, os.getpid()])
        yield
        figures["load"] = {"foreign_processors": load.processors()}


class Answer:
    """What a call told. `times` are seconds from the call to each projection's scores."""

    def __init__(self):
        self.scores, self.times, self.seconds = [], [], 0.0
        self._arrays = []  # [key, bytes] of the last projection's local scores
        self.accepted = self.report = None

    def take(self, frame, now):
        kind = frame.WhichOneof("frame")
        if kind == "single":
            self.accepted, self.report = frame.single.accepted, frame.single.summary.report
            for item in frame.single.items:
                self._item(item.WhichOneof("item"), getattr(item, item.WhichOneof("item")), now)
        elif kind in ("scores", "item_error"):
            self._item(kind, getattr(frame, kind), now)
        elif kind == "local_chunk":
            self._arrays[frame.local_chunk.operand][1] += frame.local_chunk.data
        elif kind == "accepted":
            self.accepted = frame.accepted
        elif kind == "summary":
            self.report = frame.summary.report

    def _item(self, kind, item, now):
        if kind == "item_error":
            raise BenchError(f"projection {item.index}: {item.error.message}")
        self.times.append(now)
        self.scores.append([dict(spec.values) for spec in item.specs])
        self._arrays = [[array.key, bytearray(array.inline_data)] for array in item.local_arrays]

    def local_arrays(self):
        """Local scores of the last projection, by key."""
        return {key: np.frombuffer(data) for key, data in self._arrays}

    def parts(self):
        """Where the server spent the time of the call, by its report."""
        report = self.report
        first = report.first_projection_seconds
        return {"request_seconds": report.timing.request_seconds,
                "receive_seconds": report.timing.input_receive_seconds,
                "original_seconds": report.original_resource_seconds,
                "first_projection_seconds": first,
                "further_projection_seconds": report.further_projection_seconds,
                "resource_seconds": report.resource_seconds,
                "metric_seconds": report.metric_seconds}


class Service:
    """Makes servers of one binary. Use as a context manager."""

    def __init__(self, binary):
        self.binary = pathlib.Path(binary)
        if not self.binary.exists():
            raise BenchError(f"no server: {binary} does not exist; build it or give "
                             "--server-binary")
        self._folders = contextlib.ExitStack()

    def __enter__(self):
        self.stubs = tenond.generate_stubs(
            self._folders.enter_context(tempfile.TemporaryDirectory()))
        return self

    def __exit__(self, *error):
        self._folders.close()

    def server(self, threads):
        return Server(self, threads)


def medians(answers):
    """Medians of several calls: seconds at the client, and the parts that the server tells."""
    parts = [answer.parts() for answer in answers]
    return {"seconds": statistics.median(answer.seconds for answer in answers),
            "raw": [answer.seconds for answer in answers],
            "parts": {name: statistics.median(part[name] for part in parts) for name in parts[0]}}
