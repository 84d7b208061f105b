#!/usr/bin/env python3
"""Kills tenond with SIGKILL while it runs a job, again and again: the result must not change.

One run without a kill gives the reference. Then, --runs times: submit the same job, kill the
server at a random moment, start it again on the same state, wait for the job, read the result and
compare every bit. Some runs are killed more than once. The script stands on generated stubs alone.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import grpc
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from tenond import Tenond, generate_stubs  # noqa: E402

CHUNK = 1 << 20
SKIPPED = 77  # what ctest takes for "skipped"


class Server:
    """A tenond that may die; all of its lives share one state folder."""

    def __init__(self, stubs, build, folder, flags):
        self.stubs, self.build, self.folder, self.flags = stubs, build, pathlib.Path(folder), flags
        self.lives = 0
        self.tenond = None

    def start(self):
        folder = self.folder / f"life{self.lives}"
        folder.mkdir()
        self.lives += 1
        self.tenond = Tenond(self.build / "server" / "tenond", folder,
                             f"--state_dir={self.folder / 'state'}", *self.flags)
        info = self.tenond.wait_until_ready(self.stubs)
        return next((f.available for f in info.features if f.name == "jobs"), False)

    def kill(self):
        self.tenond.channel.close()
        self.tenond.process.send_signal(signal.SIGKILL)
        self.tenond.process.wait()

    def jobs(self):
        return self.stubs.job_pb2_grpc.JobServiceStub(self.tenond.channel)


def submission(stubs, arguments, request_id):
    """sij,sjk->ik, sliced along s: as many slices, and groups of them, as --slices says."""
    pb = stubs.plan_pb2
    numbers = np.random.default_rng(7)
    shape = (arguments.slices, arguments.extent, arguments.extent)
    arrays = [numbers.standard_normal(shape).astype(np.float32) for _ in range(2)]
    spec = stubs.tensor_pb2.TensorSpec(dtype=stubs.tensor_pb2.DATA_TYPE_FLOAT32, shape=shape)
    path = pb.ExplicitPlan(sliced_indices=["s"], path=pb.ContractionPath(
        format=pb.PATH_FORMAT_SSA, steps=[pb.PathStep(operands=[0, 1])]))
    contraction = stubs.contraction_pb2.ContractHeader(
        request_id=request_id, path=path,
        einsum=pb.Einsum(subscripts="sij,sjk->ik", operands=[pb.Operand(spec=spec)] * 2))
    frame = stubs.job_pb2.SubmitContractionRequest
    yield frame(header=stubs.job_pb2.SubmitContractionHeader(contraction=contraction))
    for operand, array in enumerate(arrays):
        data = array.tobytes()
        for offset in range(0, len(data), CHUNK):
            yield frame(chunk=stubs.tensor_pb2.TensorChunk(
                operand=operand, offset_bytes=offset, data=data[offset:offset + CHUNK]))


def wait_for(stubs, server, name, seconds=300):
    """The job in its final state."""
    final = {stubs.job_pb2.JOB_STATE_SUCCEEDED, stubs.job_pb2.JOB_STATE_FAILED,
             stubs.job_pb2.JOB_STATE_CANCELLED}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        job = server.jobs().GetJob(stubs.job_pb2.GetJobRequest(name=name), timeout=30).job
        if job.state in final:
            return job
        time.sleep(0.02)
    raise AssertionError(f"{name} did not end")


def result_of(stubs, server, job):
    assert job.state == stubs.job_pb2.JOB_STATE_SUCCEEDED, f"{job.name}: {job.error}"
    request = stubs.job_pb2.ReadResultRequest(name=job.name, checksums=True)
    data = b"".join(f.chunk.data for f in server.jobs().ReadResult(request, timeout=120)
                    if f.HasField("chunk"))
    assert len(data) == job.result_bytes, (len(data), job.result_bytes)
    return hashlib.sha256(data).hexdigest()


def submit(stubs, server, arguments, request_id):
    """Submits until it is stored: a server killed before has no job, or has it under its id."""
    return server.jobs().SubmitContraction(submission(stubs, arguments, request_id),
                                           timeout=120).job.name


def undisturbed(stubs, arguments, folder):
    server = Server(stubs, pathlib.Path(arguments.build), folder, arguments.tenond)
    if not server.start():
        return None, None, None
    begin = time.monotonic()
    job = wait_for(stubs, server, submit(stubs, server, arguments, "reference"))
    seconds = time.monotonic() - begin
    digest = result_of(stubs, server, job)
    server.tenond.stop()
    return digest, job.plan.program_fingerprint, seconds


def disturbed(stubs, arguments, folder, seconds, randomness):
    """One run; returns what happened."""
    server = Server(stubs, pathlib.Path(arguments.build), folder, arguments.tenond)
    server.start()
    name, kills = None, randomness.choice([1, 1, 1, 2, 3])
    for _ in range(kills):
        call = None
        if name is None:
            call = server.jobs().SubmitContraction.future(submission(stubs, arguments, "the-job"),
                                                          timeout=120)
        time.sleep(randomness.uniform(0, 1.1 * seconds / kills))
        if call is not None and call.done() and call.exception() is None:
            name = call.result().job.name
        server.kill()
        if call is not None:
            call.cancel()
        server.start()
    name = submit(stubs, server, arguments, "the-job")  # idempotent
    job = wait_for(stubs, server, name)
    digest = result_of(stubs, server, job)
    exit_code = server.tenond.stop()
    assert exit_code == 0, f"tenond exited with {exit_code}"
    return {"digest": digest, "fingerprint": job.plan.program_fingerprint, "kills": kills,
            "resumes": job.resume_count}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.environ.get("TENON_BUILD_DIR", ROOT / "build"))
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--slices", type=int, default=64)
    parser.add_argument("--extent", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", help="JSON file of the result")
    parser.add_argument("--tenond", action="append", default=[], metavar="FLAG",
                        help="a flag for tenond")
    arguments = parser.parse_args()
    randomness = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in ("stubs", "reference"):
            (root / name).mkdir()
        stubs = generate_stubs(root / "stubs")
        try:
            digest, fingerprint, seconds = undisturbed(stubs, arguments, root / "reference")
        except AssertionError as error:
            if "unknown setting '--state_dir'" not in str(error):
                raise
            digest = None
        if digest is None:
            print("this server has no jobs")
            return SKIPPED
        runs, wrong = [], 0
        for number in range(arguments.runs):
            run_folder = root / f"run{number}"
            run_folder.mkdir()
            run = disturbed(stubs, arguments, run_folder, seconds, randomness)
            run["same"] = (run["digest"], run["fingerprint"]) == (digest, fingerprint)
            wrong += not run["same"]
            runs.append(run)
            print(f"{number}: {run['kills']} kill(s), {run['resumes']} resume(s), "
                  f"{'same bits' if run['same'] else 'OTHER BITS'}", flush=True)
    result = {"digest": digest, "fingerprint": fingerprint, "seconds": seconds,
              "resumed_runs": sum(run["resumes"] > 0 for run in runs), "wrong": wrong, "runs": runs}
    if arguments.output:
        pathlib.Path(arguments.output).write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(runs)} runs, {result['resumed_runs']} resumed, {wrong} with other bits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
