#!/usr/bin/env python3
"""Kills tenond with SIGKILL while it runs a job, again and again: the result must not change.

One run without a kill gives the reference and its duration. Then, --runs times: submit the same
job, kill the server at a moment between the job's acceptance and its end, start it again on the
same state, wait for the job, read the result and compare every bit. The moments of the first kills
are spread evenly over the job's duration. A third of the kills wait for the next write to the job
store and hit that, some runs are killed twice, and some once before, in the submission.

Fails when a bit differs, when a resumed job computes groups again that were stored, and when fewer
than half of the runs resumed from a finished group. The script stands on generated stubs alone.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import shlex
import signal
import sys
import tempfile
import time

import grpc
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from facts import machine_facts, server_facts  # noqa: E402
from tenond import Tenond, generate_stubs  # noqa: E402

CHUNK = 1 << 20
PATIENCE = 300  # seconds
WRITE_SECONDS = 5  # a running job writes more often
SKIPPED = 77  # what ctest takes for "skipped"


class Server:
    """A tenond that may die; all of its lives share one state folder."""

    def __init__(self, stubs, arguments, folder):
        self.stubs, self.folder, self.flags = stubs, pathlib.Path(folder), arguments.tenond
        self.binary = pathlib.Path(arguments.build) / "server" / "tenond"
        self.lives = 0
        self.tenond = None

    def start(self):
        folder = self.folder / f"life{self.lives}"
        folder.mkdir()
        self.lives += 1
        self.tenond = Tenond(self.binary, folder, f"--state_dir={self.folder / 'state'}",
                             *self.flags)
        return self.tenond.wait_until_ready(self.stubs)

    def kill(self):
        self.tenond.process.send_signal(signal.SIGKILL)
        self.tenond.process.wait()
        self.tenond.channel.close()

    def stop(self):
        exit_code = self.tenond.stop()
        assert exit_code == 0, f"tenond exited with {exit_code}: {self.tenond.text()[-2000:]}"

    def jobs(self):
        return self.stubs.job_pb2_grpc.JobServiceStub(self.tenond.channel)

    def job(self, name):
        return self.jobs().GetJob(self.stubs.job_pb2.GetJobRequest(name=name), timeout=30).job

    def last_write(self):
        """When the job store was last written; None: it has no log."""
        log = self.folder / "state" / "jobs.db-wal"
        return log.stat().st_mtime_ns if log.exists() else None


def submission(stubs, arguments):
    """ij,jk,kl->il, sliced along j: a slice is much work for its few bytes of operands."""
    pb = stubs.plan_pb2
    numbers = np.random.default_rng(7)
    n, inner = arguments.extent, arguments.inner
    arrays = [numbers.standard_normal(shape).astype(np.float32)
              for shape in ((n, arguments.slices), (arguments.slices, inner), (inner, n))]
    operands = [pb.Operand(spec=stubs.tensor_pb2.TensorSpec(
        dtype=stubs.tensor_pb2.DATA_TYPE_FLOAT32, shape=array.shape)) for array in arrays]
    path = pb.ExplicitPlan(sliced_indices=["j"], path=pb.ContractionPath(
        format=pb.PATH_FORMAT_SSA,
        steps=[pb.PathStep(operands=[0, 1]), pb.PathStep(operands=[3, 2])]))
    contraction = stubs.contraction_pb2.ContractHeader(
        request_id="the-job", path=path,
        einsum=pb.Einsum(subscripts="ij,jk,kl->il", operands=operands))
    frame = stubs.job_pb2.SubmitContractionRequest
    yield frame(header=stubs.job_pb2.SubmitContractionHeader(contraction=contraction))
    for operand, array in enumerate(arrays):
        data = array.tobytes()
        for offset in range(0, len(data), CHUNK):
            yield frame(chunk=stubs.tensor_pb2.TensorChunk(
                operand=operand, offset_bytes=offset, data=data[offset:offset + CHUNK]))


def has_ended(stubs, job):
    return job.state in (stubs.job_pb2.JOB_STATE_SUCCEEDED, stubs.job_pb2.JOB_STATE_FAILED,
                         stubs.job_pb2.JOB_STATE_CANCELLED)


def wait_for(stubs, server, name):
    """The job in its final state."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        job = server.job(name)
        if has_ended(stubs, job):
            return job
        time.sleep(0.02)
    raise AssertionError(f"{name} did not end")


def result_of(stubs, server, job):
    assert job.state == stubs.job_pb2.JOB_STATE_SUCCEEDED, f"{job.name}: {job.error}"
    request = stubs.job_pb2.ReadResultRequest(name=job.name, checksums=True)
    data = b"".join(f.chunk.data for f in server.jobs().ReadResult(request, timeout=PATIENCE)
                    if f.HasField("chunk"))
    assert len(data) == job.result_bytes, (len(data), job.result_bytes)
    return hashlib.sha256(data).hexdigest()


def submit(stubs, server, arguments):
    """The name of the job, which is stored now; it may have been before."""
    return server.jobs().SubmitContraction(submission(stubs, arguments), timeout=PATIENCE).job.name


def undisturbed(stubs, arguments, folder):
    """The reference, and what the result tells of the server; None: it has no jobs."""
    server = Server(stubs, arguments, folder)
    info = server.start()
    if not next((f.available for f in info.features if f.name == "jobs"), False):
        return None
    begin = time.monotonic()
    name = submit(stubs, server, arguments)
    accepted = time.monotonic()
    job = wait_for(stubs, server, name)
    reference = {"digest": result_of(stubs, server, job),
                 "fingerprint": job.plan.program_fingerprint,
                 "groups": job.groups_total, "slices": job.plan.slices,
                 "submission_seconds": accepted - begin,
                 "run_seconds": time.monotonic() - accepted}
    server.stop()
    return reference, server_facts(info)


def kill_in_submission(stubs, arguments, server, moment):
    call = server.jobs().SubmitContraction.future(submission(stubs, arguments), timeout=PATIENCE)
    time.sleep(moment)
    server.kill()
    call.cancel()
    server.start()


def kill_in_run(stubs, server, name, slices, run_seconds, kill):
    """Kills at `kill["moment"]`, in 0 to 1, of what is left of the job; returns what happened."""
    begin = time.monotonic()
    first = server.job(name)
    left = 1 - first.groups_done / first.groups_total
    share = 1 - left * (1 - kill["moment"])  # of all slices: it may be faster
    written, job = server.last_write(), first
    while (time.monotonic() - begin < kill["moment"] * left * run_seconds
           and job.progress.slices_done < share * slices
           and not has_ended(stubs, job)):
        time.sleep(0.01)
        written, job = server.last_write(), server.job(name)
    if kill["in_write"] and not has_ended(stubs, job):
        deadline = time.monotonic() + WRITE_SECONDS
        while server.last_write() == written and time.monotonic() < deadline:
            time.sleep(0.0001)
    server.kill()
    server.start()
    after = server.job(name)
    ended = has_ended(stubs, after)
    # Before the first stored groups it may be another write than theirs.
    lost = kill["in_write"] and not ended and 0 < after.groups_done == job.groups_done
    # Those known as finished: progress is told five times a second.
    finished = job.progress.slices_done * job.groups_total // slices
    return {**kill, "finished_groups": max(finished, job.groups_done),
            "stored_groups": after.groups_done, "ended": ended, "write_was_lost": lost}


def disturbed(stubs, arguments, folder, reference, run_seconds, plan):
    """One run of a job that should take `run_seconds`; returns what happened."""
    server = Server(stubs, arguments, folder)
    server.start()
    if plan["submission_moment"] is not None:
        kill_in_submission(stubs, arguments, server,
                           plan["submission_moment"] * reference["submission_seconds"])
    name = submit(stubs, server, arguments)
    kills = [kill_in_run(stubs, server, name, reference["slices"], run_seconds, kill)
             for kill in plan["kills"]]
    job = wait_for(stubs, server, name)
    digest = result_of(stubs, server, job)
    server.stop()
    resumed_from = max(0 if kill["ended"] else kill["stored_groups"] for kill in kills)
    # The report is of the last life alone.
    last = kills[-1]
    anew = not last["ended"] and job.report.slice_groups > job.groups_total - last["stored_groups"]
    same = (digest, job.plan.program_fingerprint) == (reference["digest"], reference["fingerprint"])
    return {"submission_moment": plan["submission_moment"], "kills": kills,
            "run_seconds": job.report.timing.request_seconds,
            "resumes": job.resume_count, "resumed_from_group": resumed_from,
            "computed_stored_groups_again": anew, "same": same}


def plans_of(runs, randomness):
    """When and how often each run is killed."""
    moments = [(n + randomness.random()) / runs for n in range(runs)]
    randomness.shuffle(moments)
    plans = []
    for n, moment in enumerate(moments):
        kills = [{"moment": moment, "in_write": n % 3 == 1}]
        if n % 4 == 2:
            kills.append({"moment": randomness.random(), "in_write": n % 3 == 2})
        in_submission = randomness.random() if n % 10 == 3 else None
        plans.append({"submission_moment": in_submission, "kills": kills})
    return plans


def describe(run):
    kills = ", ".join(
        f"{'in a write ' if kill['in_write'] else ''}after >= {kill['finished_groups']} groups "
        f"({'it had ended' if kill['ended'] else str(kill['stored_groups']) + ' stored'})"
        for kill in run["kills"])
    if run["submission_moment"] is not None:
        kills = "in the submission, " + kills
    again = ", COMPUTED STORED GROUPS AGAIN" if run["computed_stored_groups_again"] else ""
    return f"killed {kills}: {'same bits' if run['same'] else 'OTHER BITS'}{again}"


def summarize(runs):
    kills = [kill for run in runs for kill in run["kills"]]
    return {"runs": len(runs), "kills": len(kills),
            "kills_in_submission": sum(run["submission_moment"] is not None for run in runs),
            "kills_in_write": sum(kill["in_write"] for kill in kills),
            "writes_lost": sum(kill["write_was_lost"] for kill in kills),
            "resumed_runs": sum(run["resumes"] > 0 and run["resumed_from_group"] > 0
                                for run in runs),
            "with_other_bits": sum(not run["same"] for run in runs),
            "computed_stored_groups_again": sum(run["computed_stored_groups_again"]
                                                for run in runs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.environ.get("TENON_BUILD_DIR", ROOT / "build"))
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--slices", type=int, default=4096)
    parser.add_argument("--extent", type=int, default=256, help="of the result, in both directions")
    parser.add_argument("--inner", type=int, default=2048, help="extent that each slice sums over")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", help="JSON file of the result")
    parser.add_argument("--tenond", action="append", default=[], metavar="FLAG",
                        help="a flag for tenond")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stubs = generate_stubs(folder)
        with tempfile.TemporaryDirectory() as run_folder:
            found = undisturbed(stubs, arguments, run_folder)
        if found is None:
            print("this server has no jobs")
            return SKIPPED
        reference, server = found
        print(f"undisturbed: {reference['run_seconds']:.1f} s, {reference['groups']} groups",
              flush=True)
        runs, run_seconds = [], reference["run_seconds"]
        for plan in plans_of(arguments.runs, random.Random(arguments.seed)):
            with tempfile.TemporaryDirectory() as run_folder:
                runs.append(disturbed(stubs, arguments, run_folder, reference,
                                      run_seconds, plan))
            run_seconds = runs[-1]["run_seconds"]  # the machine's pace changes
            print(f"{len(runs)}: {describe(runs[-1])}", flush=True)
    summary = summarize(runs)
    result = {"what": "a job whose server is killed at random moments, beside one undisturbed",
              "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "command": shlex.join(["kill_jobs.py", *sys.argv[1:]]),
              "machine": machine_facts(), "server": server, "tenond_flags": arguments.tenond,
              "reference": reference, "summary": summary, "runs": runs}
    if arguments.output:
        pathlib.Path(arguments.output).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(summary, indent=1))
    wrong = summary["with_other_bits"] + summary["computed_stored_groups_again"]
    return 1 if wrong or 2 * summary["resumed_runs"] < len(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
