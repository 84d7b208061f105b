#!/usr/bin/env python3
"""Mixed work on a tenond for minutes; fails when memory, files or threads keep growing.

Contractions of many sizes, in one set and in many, plans and estimates, measurements of data sets
that are sent or kept, uploads, jobs, cancelled calls, slow readers and refused requests run at the
same time. Now and then all of it pauses, the server gives back what it keeps for later (Trim), and
what is left of its resident memory is a sample: while requests run, their own memory would hide a
leak. After the warm-up the samples must not rise: their slope is estimated by Theil-Sen (the median
of the slopes between all pairs, which single peaks do not move), that by least squares is printed
beside it. The same holds, much closer, for what the allocator has given out: fragments do not blur
that. The script stands on generated stubs alone.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter

import grpc
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from facts import machine_facts, server_facts  # noqa: E402
from tenond import Tenond, generate_stubs  # noqa: E402

CHUNK = 1 << 20
MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
# What a soak may run into: the rest is a failure.
EXPECTED = {"OVERLOADED", "CLIENT_CANCELLED", "EXCEEDS_SERVER_LIMIT", "BAD_EXPRESSION",
            "SHAPE_MISMATCH", "TRUNCATED_UPLOAD", "CANCELLED"}


class Work:
    """One client with its own channel and random numbers."""

    def __init__(self, stubs, address, seed):
        self.pb = stubs
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.channel = grpc.insecure_channel(address,
                                             options=[("grpc.use_local_subchannel_pool", 1)])
        self.contraction = stubs.contraction_pb2_grpc.ContractionServiceStub(self.channel)
        self.measurement = stubs.measurement_pb2_grpc.MeasurementServiceStub(self.channel)
        self.datasets = stubs.dataset_pb2_grpc.DatasetServiceStub(self.channel)
        self.jobs = stubs.job_pb2_grpc.JobServiceStub(self.channel)
        self.hd = self.numbers.standard_normal((200, 10))

    def spec(self, array):
        dtype = getattr(self.pb.tensor_pb2, "DATA_TYPE_" + array.dtype.name.upper())
        return self.pb.tensor_pb2.TensorSpec(dtype=dtype, shape=array.shape)

    def header(self, subscripts, arrays, inline):
        operands = [self.pb.plan_pb2.Operand(spec=self.spec(a)) for a in arrays]
        if inline:
            for operand, array in zip(operands, arrays):
                operand.inline_data = array.tobytes()
        pb = self.pb.contraction_pb2
        return pb.ContractRequest(header=pb.ContractHeader(
            einsum=self.pb.plan_pb2.Einsum(subscripts=subscripts, operands=operands)))

    def chunks(self, message, field, array, operand=0):
        data = array.tobytes()
        for offset in range(0, len(data), CHUNK):
            yield message(**{field: self.pb.tensor_pb2.TensorChunk(
                operand=operand, offset_bytes=offset, data=data[offset:offset + CHUNK])})

    def contract(self, frames):
        return list(self.contraction.Contract(iter(frames), timeout=60))

    # Each of the following is one request.

    def small_contraction(self):
        n = self.random.choice([2, 8, 17, 40])
        a, b = self.numbers.standard_normal((2, n, n))
        answer, = self.contract([self.header("ab,bc->ac", [a, b], True)])
        result = np.frombuffer(answer.single.results[0].inline_data).reshape(n, n)
        assert np.allclose(result, a @ b), "a wrong product"

    def large_contraction(self):
        n = self.random.choice([200, 350, 500, 700, 900])
        a, b = self.numbers.standard_normal((2, n, n)).astype(np.float32)
        request = self.pb.contraction_pb2.ContractRequest
        frames = [self.header("ab,bc->ac", [a, b], False),
                  *self.chunks(request, "chunk", a, 0), *self.chunks(request, "chunk", b, 1)]
        data = b"".join(f.chunk.data for f in self.contract(frames) if f.HasField("chunk"))
        assert np.allclose(np.frombuffer(data, np.float32).reshape(n, n), a @ b, atol=1e-2)

    def many_sets(self):
        a = self.numbers.standard_normal((9, 9))
        sets = self.random.choice([1, 5, 40])
        request = self.pb.contraction_pb2.ContractRequest
        header = self.header("ab,bc->ac", [a, a], False)
        for operand in header.header.einsum.operands:
            operand.varying = True
        frames = [header]
        for index in range(sets):
            for operand in range(2):
                frames.append(request(chunk=self.pb.tensor_pb2.TensorChunk(
                    set=index, operand=operand, data=a.tobytes())))
        results = [f.result for f in self.contract(frames) if f.HasField("result")]
        assert len(results) == sets
        for result in results:
            assert np.allclose(np.frombuffer(result.inline_data).reshape(9, 9), a @ a)

    def ring(self):
        """One of a few rings of matrices: what is kept for them is complete after a while."""
        length = self.random.randrange(5, 25)
        names = [f"i{k}" for k in range(length)]
        pb = self.pb.plan_pb2
        return pb.Network(
            operands=[pb.Operand(indices=[names[k], names[(k + 1) % length]])
                      for k in range(length)],
            index_sizes={name: 2 + k % 3 for k, name in enumerate(names)})

    def plan(self):
        pb = self.pb.contraction_pb2
        search = self.pb.plan_pb2.SearchOptions(max_trials=16, seed=self.random.randrange(5))
        request = pb.PlanContractionRequest(network=self.ring(), search=search)
        frames = list(self.contraction.PlanContraction(request, timeout=60))
        assert frames[-1].HasField("plan")

    def estimate(self):
        pb = self.pb.contraction_pb2
        answer = self.contraction.Estimate(
            pb.EstimateRequest(header=pb.ContractHeader(network=self.ring())), timeout=60)
        assert answer.planned_peak_bytes > 0

    def measure(self):
        self.measure_by(dataset_input=self.measurement_input())

    def measure_kept(self):
        pb = self.pb.dataset_pb2
        frames = [pb.CreateDatasetRequest(header=pb.CreateDatasetHeader(spec=self.spec(self.hd))),
                  *self.chunks(pb.CreateDatasetRequest, "chunk", self.hd)]
        kept = self.datasets.CreateDataset(iter(frames), timeout=60).dataset
        self.measure_by(dataset_handle=kept.name)
        if self.random.random() < 0.2:  # the rest is for others, or for the store's limits
            try:
                self.datasets.DeleteDataset(pb.DeleteDatasetRequest(name=kept.name), timeout=60)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error

    def measurement_input(self):
        return self.pb.measurement_pb2.DatasetInput(spec=self.spec(self.hd),
                                                    inline_data=self.hd.tobytes())

    def measure_by(self, **data):
        pb = self.pb.measurement_pb2
        specs = [self.pb.measure_spec_pb2.MeasureSpec(id=name) for name in ("stress", "tnc")]
        frames = [pb.MeasureRequest(header=pb.MeasureHeader(
            specs=specs, client_stream=pb.ClientStreamSource(), **data))]
        for index in range(3):
            flat = self.numbers.standard_normal((200, 2))
            frames.append(pb.MeasureRequest(projection=pb.Projection(
                index=index, spec=self.spec(flat), inline_data=flat.tobytes())))
        answers = list(self.measurement.Measure(iter(frames), timeout=60))
        assert sum(a.HasField("scores") for a in answers) in (0, 3)

    def upload(self):
        pb = self.pb.dataset_pb2
        array = self.numbers.standard_normal(self.random.choice([10_000, 300_000, 1_000_000]))
        frames = [pb.CreateTensorRequest(header=pb.CreateTensorHeader(spec=self.spec(array))),
                  *self.chunks(pb.CreateTensorRequest, "chunk", array)]
        stored = self.datasets.CreateTensor(iter(frames), timeout=60).tensor
        self.datasets.DeleteTensor(pb.DeleteTensorRequest(name=stored.name), timeout=60)

    def cancel(self):
        n = 1500
        a = np.ones((n, n), np.float32)
        request = self.pb.contraction_pb2.ContractRequest
        frames = [self.header("ab,bc->ac", [a, a], False),
                  *self.chunks(request, "chunk", a, 0), *self.chunks(request, "chunk", a, 1)]
        call = self.contraction.Contract(iter(frames), timeout=60)
        time.sleep(self.random.uniform(0, 0.1))
        call.cancel()
        try:
            list(call)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.CANCELLED, error

    def slow_reader(self):
        n = 1200
        a = np.ones((n, 1), np.float32)
        request = self.pb.contraction_pb2.ContractRequest
        frames = [self.header("ab,cb->ac", [a, a], False),
                  *self.chunks(request, "chunk", a, 0), *self.chunks(request, "chunk", a, 1)]
        call = self.contraction.Contract(iter(frames), timeout=60)
        for frame in call:
            time.sleep(0.05)
            if frame.HasField("chunk"):
                assert set(np.frombuffer(frame.chunk.data, np.float32)) == {1.0}

    def job(self):
        pb = self.pb.job_pb2
        a = self.numbers.standard_normal((4, 60, 60))
        plan = self.pb.plan_pb2
        spec = plan.Operand(spec=self.spec(a))
        header = self.pb.contraction_pb2.ContractHeader(
            einsum=plan.Einsum(subscripts="sij,sjk->ik", operands=[spec, spec]),
            path=plan.ExplicitPlan(sliced_indices=["s"], path=plan.ContractionPath(
                format=plan.PATH_FORMAT_SSA, steps=[plan.PathStep(operands=[0, 1])])))
        frames = [pb.SubmitContractionRequest(header=pb.SubmitContractionHeader(
            contraction=header))]
        for operand in range(2):
            frames += self.chunks(pb.SubmitContractionRequest, "chunk", a, operand)
        name = self.jobs.SubmitContraction(iter(frames), timeout=60).job.name
        last = None
        for frame in self.jobs.WatchJob(pb.WatchJobRequest(name=name), timeout=60):
            last = frame.job if frame.HasField("job") else last
        assert last.state == pb.JOB_STATE_SUCCEEDED, last
        data = b"".join(f.chunk.data for f in self.jobs.ReadResult(
            pb.ReadResultRequest(name=name), timeout=60) if f.HasField("chunk"))
        expected = np.einsum("sij,sjk->ik", a, a)
        assert np.allclose(np.frombuffer(data).reshape(60, 60), expected)
        self.jobs.DeleteJob(pb.DeleteJobRequest(name=name), timeout=60)

    def refused(self):
        a = np.ones((3, 3))
        bad = self.random.choice([
            [self.header("ab,bc->zc", [a, a], True)],
            [self.header("ab,bc->ac", [a, np.ones((4, 3))], True)],
            [self.header("ab,bc->ac", [a, a], False)],
        ])
        try:
            self.contract(bad)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
            return
        raise AssertionError("a bad request was answered")

    KINDS = [(small_contraction, 40), (large_contraction, 8), (many_sets, 8), (plan, 4),
             (estimate, 4), (measure, 6), (measure_kept, 4), (upload, 4), (job, 4), (cancel, 2),
             (slow_reader, 1), (refused, 8)]


def reason_of(stubs, error):
    raw = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if raw is None:
        return error.code().name
    info = stubs.status_details_pb2.ErrorInfo()
    for any_message in stubs.status_details_pb2.Status.FromString(raw).details:
        if any_message.Unpack(info):
            return info.reason
    return error.code().name


class Gate:
    """Lets requests through, or none."""

    def __init__(self):
        self.changed = threading.Condition()
        self.inside, self.shut = 0, False

    @contextlib.contextmanager
    def request(self):
        with self.changed:
            self.changed.wait_for(lambda: not self.shut)
            self.inside += 1
        try:
            yield
        finally:
            with self.changed:
                self.inside -= 1
                self.changed.notify_all()

    @contextlib.contextmanager
    def closed(self):
        """Nothing runs."""
        with self.changed:
            self.shut = True
            self.changed.wait_for(lambda: self.inside == 0)
        try:
            yield
        finally:
            with self.changed:
                self.shut = False
                self.changed.notify_all()


def run_client(stubs, address, seed, end, only, gate, counts, failures):
    work = Work(stubs, address, seed)
    kinds, weights = zip(*[(kind, weight) for kind, weight in Work.KINDS
                           if not only or kind.__name__ in only])
    while time.monotonic() < end and not failures:
        kind = work.random.choices(kinds, weights)[0]
        try:
            with gate.request():
                kind(work)
            counts[kind.__name__] += 1
        except grpc.RpcError as error:
            reason = reason_of(stubs, error)
            counts[reason] += 1
            if reason not in EXPECTED:
                failures.append(f"{kind.__name__}: {reason}: {error.details()}")
        except Exception as error:  # pylint: disable=broad-except
            failures.append(f"{kind.__name__}: {error!r}")
    work.channel.close()


def trim(stubs, channel):
    """Asks the server to give back what it keeps for later."""
    pb = stubs.admin_pb2
    stubs.admin_pb2_grpc.AdminServiceStub(channel).Trim(
        pb.TrimRequest(resources=True, caches=True, stored=True, allocator=True), timeout=60)


def metric(tenond, name):
    with urllib.request.urlopen(f"http://{tenond.metrics}/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return int(float(line.split()[1]))
    raise AssertionError(f"there is no metric {name}")


def sample(tenond):
    folder = pathlib.Path(f"/proc/{tenond.process.pid}")
    in_use = metric(tenond, 'tenon_allocator_bytes{kind="in_use"}')
    return {"in_use": in_use,
            "resident": int((folder / "statm").read_text().split()[1]) * PAGE,
            "files": len(os.listdir(folder / "fd")), "threads": len(os.listdir(folder / "task"))}


def theil_sen(times, values):
    slopes = [(values[j] - values[i]) / (times[j] - times[i])
              for i in range(len(times)) for j in range(i + 1, len(times))]
    return statistics.median(slopes)


def least_squares(times, values):
    return float(np.polyfit(times, values, 1)[0])


def growth(samples, key):
    """Median of the last quarter above that of the first."""
    quarter = max(len(samples) // 4, 1)
    return (statistics.median(s[key] for s in samples[-quarter:])
            - statistics.median(s[key] for s in samples[:quarter]))


def judge(samples, arguments):
    """The figures, and what is wrong with them."""
    # At most 300 samples: every pair of them has a slope.
    thin = samples[::max(len(samples) // 300, 1)]
    times = [s["seconds"] for s in thin]
    resident = [s["resident"] for s in thin]
    span = times[-1] - times[0]
    in_use = [s["in_use"] for s in thin]
    slope, in_use_slope = theil_sen(times, resident), theil_sen(times, in_use)
    figures = {
        "span_seconds": span,
        "slope_mib_per_hour": slope * 3600 / MIB,
        "least_squares_mib_per_hour": least_squares(times, resident) * 3600 / MIB,
        "rise_mib": slope * span / MIB,
        "in_use_slope_mib_per_hour": in_use_slope * 3600 / MIB,
        "in_use_rise_mib": in_use_slope * span / MIB,
        "median_in_use_mib": statistics.median(in_use) / MIB,
        "median_resident_mib": statistics.median(resident) / MIB,
        "largest_resident_mib": max(resident) / MIB,
        "files_growth": growth(samples, "files"),
        "threads_growth": growth(samples, "threads"),
    }
    wrong = []
    if figures["rise_mib"] > arguments.max_rise_mib:
        wrong.append(f"memory rose by {figures['rise_mib']:.1f} MiB; "
                     f"{arguments.max_rise_mib} are allowed")
    if figures["in_use_rise_mib"] > arguments.max_in_use_rise_mib:
        wrong.append(f"what the allocator has given out rose by {figures['in_use_rise_mib']:.2f} "
                     f"MiB; {arguments.max_in_use_rise_mib} are allowed")
    for key in ("files", "threads"):
        if figures[key + "_growth"] > arguments.max_handles:
            wrong.append(f"{key} grew by {figures[key + '_growth']}")
    return figures, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.environ.get("TENON_BUILD_DIR", ROOT / "build"))
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--warmup", type=float, help="seconds (default: a quarter of the time)")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--interval", type=float, default=2, help="seconds between samples")
    parser.add_argument("--kinds", nargs="*", help="only these requests, to find what grows")
    parser.add_argument("--max_rise_mib", type=float, default=4,
                        help="allowed rise over the measured time")
    parser.add_argument("--max_in_use_rise_mib", type=float, default=1,
                        help="allowed rise of what the allocator has given out")
    parser.add_argument("--max_handles", type=int, default=3,
                        help="allowed growth of files and threads")
    parser.add_argument("--output", help="JSON file of the result")
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes
    warmup = arguments.warmup if arguments.warmup is not None else seconds / 4
    assert seconds > warmup + 4, "there is nothing left to measure"

    with tempfile.TemporaryDirectory() as folder:
        stubs_folder = pathlib.Path(folder) / "stubs"
        stubs_folder.mkdir()
        stubs = generate_stubs(stubs_folder)
        tenond = Tenond(pathlib.Path(arguments.build) / "server" / "tenond", folder,
                        "--memory_budget=1GiB", "--log_level=warning",
                        f"--state_dir={pathlib.Path(folder) / 'state'}")
        info = tenond.wait_until_ready(stubs)
        start = time.monotonic()
        counts, failures, samples, gate = Counter(), [], [], Gate()
        threads = [threading.Thread(target=run_client, args=(stubs, tenond.address, seed,
                                                             start + seconds, arguments.kinds,
                                                             gate, counts, failures))
                   for seed in range(arguments.clients)]
        for thread in threads:
            thread.start()
        while time.monotonic() < start + seconds and not failures:
            time.sleep(arguments.interval)
            now = time.monotonic() - start
            if now < warmup or tenond.process.poll() is not None:
                continue
            with gate.closed():
                trim(stubs, tenond.channel)
                samples.append({"seconds": now, **sample(tenond)})
        for thread in threads:
            thread.join()
        exit_code = tenond.stop()
        log = tenond.text()
    figures, wrong = judge(samples, arguments) if len(samples) > 8 else ({}, ["no samples"])
    wrong += failures
    if exit_code != 0:
        wrong.append(f"tenond exited with {exit_code}: {log[-2000:]}")
    result = {"what": "mixed work on one tenond; samples when nothing runs, after Trim",
              "machine": machine_facts(), "server": server_facts(info), "seconds": seconds, "warmup_seconds": warmup, "clients": arguments.clients,
              "requests": dict(counts), "figures": figures, "wrong": wrong, "samples": samples}
    if arguments.output:
        pathlib.Path(arguments.output).write_text(json.dumps(result) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "samples"}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
