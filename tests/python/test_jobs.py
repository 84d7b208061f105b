"""Jobs through generated stubs: a server that is killed resumes them and gives the same bits."""

import json
import os
import random
import sqlite3
import threading
import time

import grpc
import numpy as np
import pytest

from conftest import BINARY
from tenond import Tenond
from test_contraction import call, chunks, header, to_array

# Servers that are killed; tests/load/kill_jobs.py does it more often.
KILLS = int(os.environ.get("TENON_KILLS", "4"))
PATIENCE = 120


class Folder:
    """Servers with one state folder, one after the other."""

    def __init__(self, stubs, path):
        self.stubs, self.path, self.count, self.server = stubs, path, 0, None
        self.binary, self.state = BINARY, path / "state"

    def start(self, *flags):
        folder = self.path / f"server{self.count}"
        folder.mkdir()
        self.count += 1
        self.server = Tenond(self.binary, folder, f"--state_dir={self.state}",
                             f"--calibration_dir={self.path / 'calibration'}", "--threads=2",
                             *flags)
        self.server.wait_until_ready(self.stubs)
        self.jobs = self.stubs.job_pb2_grpc.JobServiceStub(self.server.channel)
        return self.server

    def kill(self):
        self.server.process.kill()
        self.server.process.wait()
        self.server.channel.close()

    def submit(self, request, **fields):
        """`request`: the frames of a contraction, the header first."""
        pb = self.stubs.job_pb2
        frames = [pb.SubmitContractionRequest(chunk=frame.chunk) for frame in request[1:]]
        frames.insert(0, pb.SubmitContractionRequest(
            header=pb.SubmitContractionHeader(contraction=request[0].header, **fields)))
        return self.jobs.SubmitContraction(iter(frames), timeout=PATIENCE)

    def wait(self, name):
        job = None
        for frame in self.jobs.WatchJob(self.stubs.job_pb2.WatchJobRequest(name=name),
                                        timeout=PATIENCE):
            job = frame.job if frame.HasField("job") else job
        return job

    def read(self, name, **fields):
        request = self.stubs.job_pb2.ReadResultRequest(name=name, **fields)
        result, *chunks = self.jobs.ReadResult(request, timeout=PATIENCE)
        return result.result, b"".join(chunk.chunk.data for chunk in chunks)


@pytest.fixture
def folder(stubs, tmp_path):
    folder = Folder(stubs, tmp_path)
    yield folder
    if folder.server is not None and folder.server.process.poll() is None:
        folder.kill()


def chain(stubs, request_id, slices=2048):
    """ij,jk,kl->il in `slices` slices along j, a second or two of work."""
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=size) for size in [(96, slices), (slices, 512), (512, 96)]]
    pb = stubs.plan_pb2
    plan = pb.ExplicitPlan(
        path=pb.ContractionPath(format=pb.PATH_FORMAT_SSA,
                                steps=[pb.PathStep(operands=[0, 1]), pb.PathStep(operands=[3, 2])]),
        sliced_indices=["j"])
    frames = [header(stubs, [["i", "j"], ["j", "k"], ["k", "l"]], ["i", "l"], arrays, inline=False,
                     request_id=request_id, path=plan)]
    for number, array in enumerate(arrays):
        frames.extend(chunks(stubs, number, array))
    return frames


def result_of_call(stubs, folder, request):
    frames = call(stubs, folder.server, request, timeout=PATIENCE)
    return b"".join(f.chunk.data for f in frames if f.HasField("chunk"))


def test_killed_servers_resume_with_the_same_bits(stubs, folder):
    folder.start()
    expected = result_of_call(stubs, folder, chain(stubs, "call"))
    for n in range(2):  # the second one is as warm as those that follow
        begin = time.monotonic()
        name = folder.submit(chain(stubs, f"whole {n}")).job.name
        assert folder.wait(name).state == stubs.job_pb2.JOB_STATE_SUCCEEDED
        seconds = time.monotonic() - begin
        assert folder.read(name)[1] == expected
    seed = int(os.environ.get("TENON_SEED", "1"))
    moments, resumed, rerun = random.Random(seed), 0, 0
    for n in range(KILLS):
        # From within the submission to the end.
        killer = threading.Timer(moments.uniform(0, seconds), folder.kill)
        killer.start()
        request = chain(stubs, f"job {n}")
        try:
            name = folder.submit(request).job.name
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error
        killer.join()
        folder.start()
        answer = folder.submit(request)  # the same job, if it was stored
        rerun += not answer.existed
        job = folder.wait(answer.job.name)
        assert job.state == stubs.job_pb2.JOB_STATE_SUCCEEDED, job.error
        assert job.plan.program_fingerprint == answer.job.plan.program_fingerprint
        assert folder.read(job.name)[1] == expected, f"kill {n}"
        resumed += job.resume_count
    print(f"{KILLS} kills: {resumed} resumed, {rerun} before the submission was stored, the bits "
          f"are the same")


def test_a_resumed_job_does_not_begin_anew(stubs, folder):
    folder.start()
    job = None
    for slices in (2048, 8192, 32768, 131072):  # until one lasts long enough to be caught halfway
        request = chain(stubs, str(slices), slices=slices)
        name = folder.submit(request).job.name
        get = stubs.job_pb2.GetJobRequest(name=name)
        deadline = time.monotonic() + PATIENCE
        while job is None and time.monotonic() < deadline:
            now = folder.jobs.GetJob(get, timeout=PATIENCE).job
            if 0 < now.groups_done < now.groups_total:
                job = now
            elif now.state not in (stubs.job_pb2.JOB_STATE_QUEUED, stubs.job_pb2.JOB_STATE_RUNNING):
                break
        if job is not None:
            break
    assert job is not None
    folder.kill()
    # Other times for the kernels than when the job was made.
    for path in (folder.path / "calibration").iterdir():
        object = json.loads(path.read_text())

        def slower(value):
            if isinstance(value, dict):
                return {k: slower(v) for k, v in value.items()}
            if isinstance(value, list):
                return [slower(v) for v in value]
            return value * 3.5 if isinstance(value, float) else value

        path.write_text(json.dumps(slower(object)))
    folder.start()
    ended = folder.wait(name)
    assert ended.state == stubs.job_pb2.JOB_STATE_SUCCEEDED, ended.error
    assert ended.resume_count == 1
    assert ended.report.slice_groups <= ended.groups_total
    assert ended.report.slices <= slices * (ended.groups_total - job.groups_done) / ended.groups_total
    assert folder.read(name)[1] == result_of_call(stubs, folder, request)
    text = folder.server.metrics
    statistics = stubs.provider_pb2_grpc.ProviderServiceStub(folder.server.channel).GetStatistics(
        stubs.provider_pb2.GetStatisticsRequest(), timeout=PATIENCE).jobs
    assert (statistics.resumed, statistics.running) == (1, 0), text
    assert statistics.ended >= 1, text


def test_a_draining_server_suspends(stubs, folder):
    folder.start()
    request = chain(stubs, "one")
    name = folder.submit(request).job.name
    next(iter(folder.jobs.WatchJob(stubs.job_pb2.WatchJobRequest(
        name=name, progress_interval_seconds=0.05), timeout=PATIENCE)))
    assert folder.server.stop() == 0, folder.server.text()
    folder.start()
    ended = folder.wait(name)
    assert ended.state == stubs.job_pb2.JOB_STATE_SUCCEEDED, ended.error
    assert folder.read(name)[1] == result_of_call(stubs, folder, request)


def test_a_damaged_store_fails_one_job(stubs, folder):
    folder.start()
    small = [np.ones((2, 2)), np.ones((2, 2))]
    requests = [[header(stubs, [["a", "b"], ["b", "c"]], ["a", "c"], small, request_id=str(n))]
                for n in range(2)]
    long = folder.submit(chain(stubs, "long")).job.name  # the others wait behind it
    names = [folder.submit(request).job.name for request in requests]
    folder.kill()
    with sqlite3.connect(folder.path / "state" / "jobs.db") as database:
        number = database.execute("SELECT number FROM jobs ORDER BY number").fetchall()[1][0]
        changed = database.execute("UPDATE pieces SET bytes = zeroblob(length(bytes))"
                                   " WHERE job = ? AND data = 1 AND part = 0", (number,)).rowcount
        assert changed == 1
    database.close()
    folder.start()
    damaged, sound = (folder.wait(name) for name in names)
    assert damaged.state == stubs.job_pb2.JOB_STATE_FAILED
    assert damaged.error.reason == "CHECKSUM_MISMATCH"
    assert sound.state == stubs.job_pb2.JOB_STATE_SUCCEEDED
    assert folder.wait(long).state == stubs.job_pb2.JOB_STATE_SUCCEEDED


def test_a_result_is_read_in_parts(stubs, folder, error_of):
    folder.start()
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(700, 3)), rng.normal(size=(3, 500))
    request = [header(stubs, [["a", "b"], ["b", "c"]], ["a", "c"], [a, b])]
    name = folder.submit(request, display_name="parts").job.name
    job = folder.wait(name)
    assert job.display_name == "parts"
    result, data = folder.read(name, checksums=True)
    np.testing.assert_allclose(to_array(result.spec, data, stubs), a @ b)
    assert job.result_bytes == len(data) > 1 << 20
    pieces = [folder.read(name, offset_bytes=offset, limit_bytes=999_999)[1]
              for offset in range(0, len(data), 999_999)]
    assert b"".join(pieces) == data
    folder.jobs.DeleteJob(stubs.job_pb2.DeleteJobRequest(name=name), timeout=PATIENCE)
    with pytest.raises(grpc.RpcError) as raised:
        folder.read(name)
    assert error_of(raised.value)[:3] == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND", ["name"])


def test_a_small_budget_refuses_and_the_server_goes_on(stubs, folder, error_of):
    folder.start("--state_budget=1MiB")
    large = [header(stubs, [["a"], ["b"]], ["a", "b"], [np.ones(1000), np.ones(1000)])]
    with pytest.raises(grpc.RpcError) as raised:
        folder.submit(large)
    code, reason, fields, metadata = error_of(raised.value)
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "EXCEEDS_SERVER_LIMIT")
    assert fields == ["header"] and metadata["limit_bytes"] == str(1 << 20)
    small = [header(stubs, [["a"], ["b"]], ["a", "b"], [np.ones(10), np.ones(10)])]
    assert folder.wait(folder.submit(small).job.name).state == stubs.job_pb2.JOB_STATE_SUCCEEDED


def test_jobs_need_a_state_folder(stubs, start_server, error_of):
    server = start_server()
    info = server.wait_until_ready(stubs)
    features = {feature.name: feature for feature in info.features}
    assert not features["jobs"].available and "--state_dir" in features["jobs"].detail
    jobs = stubs.job_pb2_grpc.JobServiceStub(server.channel)
    with pytest.raises(grpc.RpcError) as raised:
        jobs.ListJobs(stubs.job_pb2.ListJobsRequest(), timeout=PATIENCE)
    assert error_of(raised.value)[1] == "NOT_IMPLEMENTED"
