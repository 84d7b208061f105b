"""The Tenon side: for each network a server of its own that keeps the operands."""

import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import time

import grpc
import numpy as np

import corpus
import timing
from corpus import BenchError
from load import ForeignLoad
from peer import reset_high_water, status_bytes
from peers import environment

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import tenond  # noqa: E402

_CHUNK = 1 << 20
_KERNEL_FIELDS = ("steps", "invocations", "flops", "seconds")


class Service:
    """Starts servers of one binary. Use as a context manager."""

    def __init__(self, binary, threads):
        self.binary, self.threads = pathlib.Path(binary), threads
        if not self.binary.exists():
            raise BenchError(f"no server: {binary} does not exist; build it or give "
                             "--server-binary")
        self._folders = contextlib.ExitStack()

    def __enter__(self):
        self._root = pathlib.Path(self._folders.enter_context(tempfile.TemporaryDirectory()))
        (self._root / "stubs").mkdir()
        self.stubs = tenond.generate_stubs(self._root / "stubs")
        return self

    def __exit__(self, *error):
        self._folders.close()

    def measure(self, network, dtype, reference, cap, repeats):
        """Contracts a network on a fresh, then warm server; see `_figures` for what it returns."""
        with tempfile.TemporaryDirectory(dir=self._root) as folder:
            server = tenond.Tenond(self.binary, folder, f"--threads={self.threads}",
                                   env=environment(self.threads))
            try:
                info = server.wait_until_ready(self.stubs)
                session = _Session(self.stubs, server, network, dtype, self.threads)
                figures = session.measure(reference, cap, repeats)
                figures["server_version"] = info.version
                return figures
            finally:
                server.stop()


class _Session:
    """One network on one server."""

    def __init__(self, stubs, server, network, dtype, threads):
        self.stubs, self.server, self.network, self.dtype = stubs, server, network, dtype
        self.spec_dtype = getattr(stubs.tensor_pb2, "DATA_TYPE_" + dtype.upper())
        self.contraction = stubs.contraction_pb2_grpc.ContractionServiceStub(server.channel)
        handles = [self._upload(k) for k in range(len(network.inputs))]
        execution = stubs.execution_pb2
        # The first call tells everything; the timed ones ask for figures alone, as a client that
        # repeats a call would.
        self.first = self._header(handles, threads, execution.REPORT_DETAIL_FULL)
        self.again = self._header(handles, threads, execution.REPORT_DETAIL_BRIEF)

    def _upload(self, tensor):
        """Stores one operand on the server; returns its handle."""
        pb = self.stubs.dataset_pb2
        array = corpus.make_operand(self.network, tensor, self.dtype)
        data = memoryview(np.ascontiguousarray(array)).cast("B") if array.ndim else array.tobytes()
        spec = self.stubs.tensor_pb2.TensorSpec(dtype=self.spec_dtype, shape=array.shape)

        def frames():
            small = len(data) < 65536
            header = pb.CreateTensorHeader(spec=spec)
            if small:
                header.inline_data = bytes(data)
            yield pb.CreateTensorRequest(header=header)
            for offset in range(0, 0 if small else len(data), _CHUNK):
                yield pb.CreateTensorRequest(chunk=self.stubs.tensor_pb2.TensorChunk(
                    offset_bytes=offset, data=bytes(data[offset:offset + _CHUNK])))

        stub = self.stubs.dataset_pb2_grpc.DatasetServiceStub(self.server.channel)
        return stub.CreateTensor(frames(), timeout=600).tensor.name

    def _header(self, handles, threads, detail):
        plan, network = self.stubs.plan_pb2, self.network
        header = self.stubs.contraction_pb2.ContractHeader(
            network=plan.Network(
                operands=[plan.Operand(indices=indices, handle=handle)
                          for indices, handle in zip(network.inputs, handles)],
                output=network.output),
            path=plan.ExplicitPlan(
                path=plan.ContractionPath(
                    format=plan.PATH_FORMAT_SSA,
                    steps=[plan.PathStep(operands=pair) for pair in network.path_ssa]),
                sliced_indices=network.sliced))
        header.execution.threads = threads
        header.result.report_detail = detail
        return self.stubs.contraction_pb2.ContractRequest(header=header)

    def _call(self, request, timeout):
        """One contraction. Returns (seconds at the client, report, result's bytes)."""
        start = time.perf_counter()
        parts, report = [], None
        for frame in self.contraction.Contract(iter([request]), timeout=timeout):
            kind = frame.WhichOneof("frame")
            if kind == "single":
                parts, report = [frame.single.results[0].inline_data], frame.single.report
            elif kind == "result" and frame.result.HasField("inline_data"):
                parts.append(frame.result.inline_data)
            elif kind == "chunk":
                parts.append(frame.chunk.data)
            elif kind == "report":
                report = frame.report
        return time.perf_counter() - start, report, parts

    def measure(self, reference, cap, repeats):
        """One call on the fresh server, whose peak is taken, then the timed ones."""
        pid = self.server.process.pid
        before = status_bytes("VmRSS", pid)
        reset = reset_high_water(pid)
        try:
            first, report, parts = self._call(self.first, timeout=10 * cap)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                raise BenchError(f"{self.network.name}: {error.code()} {error.details()}")
            return {"seconds": 10 * cap, "over": True}
        rss = {"rss_before_bytes": before, "rss_peak_bytes": status_bytes("VmHWM", pid),
               "high_water_reset": reset}
        check = self._check(reference, parts)
        del parts
        load = ForeignLoad([pid, os.getpid()])
        count = timing.plan(first, 1, max(cap, first), repeats).repeats
        calls = [self._call(self.again, timeout=10 * cap)[:2] for _ in range(count)]
        figures = _figures(calls)
        figures["load"] = {"foreign_processors": load.processors()}
        figures.update(_report_figures(report))
        figures["memory"].update(rss)
        if check is not None:
            figures["check"] = check
        figures["raw"]["first_seconds"] = first
        return figures

    def _check(self, reference, parts):
        if not corpus.has_reference(reference, self.dtype):
            return None
        result = np.frombuffer(b"".join(parts), self.dtype).reshape(self.network.output_shape())
        difference, tolerance = corpus.compare(reference, result)
        return {"difference": difference, "tolerance": tolerance}


def _engine_seconds(timing_report):
    return (timing_report.input_prepare_seconds + timing_report.setup_seconds
            + timing_report.execution_seconds)


def _figures(calls):
    """Medians over warm calls [(seconds at the client, report)].

    seconds              the server's input_prepare + setup + execution
    end_to_end_seconds   at the client, from the call to the report, result received
    request_seconds      at the server, from the header to the report; what is not in it is the wire
                         and the client
    """
    raw = {"seconds": [_engine_seconds(report.timing) for _, report in calls],
           "end_to_end_seconds": [seconds for seconds, _ in calls]}
    for part in ("input_prepare", "setup", "execution", "request"):
        raw[part + "_seconds"] = [getattr(report.timing, part + "_seconds") for _, report in calls]
    figures = {name: statistics.median(values) for name, values in raw.items()}
    return {"over": False, **figures, "raw": raw}


def _report_figures(report):
    """What a report tells that does not change from call to call."""
    plan = report.memory.plan
    kernels = {}
    for provider in report.providers:
        for use in provider.kernels:
            kernel = kernels.setdefault(use.name, dict.fromkeys(_KERNEL_FIELDS, 0))
            for field in _KERNEL_FIELDS:
                kernel[field] += getattr(use, field)
    return {
        "real_flops": report.real_flops,
        "bytes_moved": report.bytes_moved,
        "hoisted_fraction": report.hoisted_fraction,
        "slices": report.slices,
        "slice_groups": report.slice_groups,
        "program_fingerprint": report.plan.program_fingerprint,
        "memory": {
            "planned_bytes": report.memory.planned_peak_bytes,
            "measured_bytes": report.memory.measured_peak_bytes,
            "operand_bytes": plan.operand_bytes,
            "workers": plan.workers,
        },
        "kernels": kernels,
    }
