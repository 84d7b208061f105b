"""Jobs on a file system that is really full: a small tmpfs in a mount namespace of the server's."""

import errno
import os
import shutil
import subprocess

import grpc
import numpy as np
import pytest

from conftest import BINARY
from test_contraction import call, header, to_array
from test_jobs import Folder, chain, PATIENCE

MIB = 1 << 20
BUDGET = "--state_budget=1GiB"  # it does not bound what other processes write

class SmallDisk(Folder):
    """Servers whose state folder lies on a disk of `size` bytes."""

    def __init__(self, stubs, path, size):
        super().__init__(stubs, path)
        self.disk = path / "disk"
        self.disk.mkdir()
        # The disk lives as long as a process of its namespace; the end of its input ends that.
        self.holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c",
             f"mount -t tmpfs -o size={size} tmpfs '{self.disk}' && echo mounted && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.mounted = self.holder.stdout.readline() == "mounted\n"
        if not self.mounted:
            return
        # Each becomes the next: the process that is started is the server.
        wrapper = path / "tenond"
        wrapper.write_text(f"#!/bin/sh\nexec nsenter -t {self.holder.pid} -U -m "
                           f"--preserve-credentials '{BINARY}' \"$@\"\n")
        wrapper.chmod(0o700)
        self.binary, self.state = wrapper, self.disk / "state"
        self.inside = f"/proc/{self.holder.pid}/root{self.disk}"

    def fill(self, leave=0):
        """Takes all that is free but `leave` bytes."""
        if leave > 0:
            status = os.statvfs(self.inside)
            with open(f"{self.inside}/other", "wb", buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - leave)
            return
        with open(f"{self.inside}/other", "ab", buffering=0) as file:
            with pytest.raises(OSError) as raised:
                while file.write(bytes(MIB)) > 0:
                    pass
            assert raised.value.errno == errno.ENOSPC

    def make_room(self):
        os.unlink(f"{self.inside}/other")

    def end(self):
        if self.server is not None and self.server.process.poll() is None:
            self.kill()
        self.holder.communicate()


@pytest.fixture
def disk(stubs, tmp_path):
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("unshare and nsenter (package util-linux) are missing")
    disk = SmallDisk(stubs, tmp_path, 64 * MIB)
    try:
        if not disk.mounted:
            pytest.skip("this user may not mount a tmpfs in a namespace of its own (unshare -rm)")
        disk.start(BUDGET)
        yield disk
    finally:
        disk.end()


def outer(stubs, size, request_id):
    """A job of few operands whose result has 8 * size * size bytes."""
    arrays = [np.arange(size, dtype=float), np.ones(size)]
    return [header(stubs, [["a"], ["b"]], ["a", "b"], arrays, request_id=request_id)]


def expect_works(stubs, disk):
    """The server is ready and answers calls that need no disk."""
    assert disk.server.wait_until_ready(stubs)
    ones = np.ones((4, 4))
    frames = call(stubs, disk.server, [header(stubs, [["a", "b"], ["b", "c"]], ["a", "c"],
                                              [ones, ones])])
    result = frames[0].single.results[0]
    np.testing.assert_array_equal(to_array(result.spec, result.inline_data, stubs), ones @ ones)


def expect_succeeds(stubs, disk, request_id, size=100):
    name = disk.submit(outer(stubs, size, request_id)).job.name
    job = disk.wait(name)
    assert job.state == stubs.job_pb2.JOB_STATE_SUCCEEDED, job.error
    assert disk.read(name)[1] == np.tile(np.arange(size, dtype=float)[:, None], size).tobytes()
    return name


def test_a_result_that_finds_no_room_fails_its_job_alone(stubs, disk):
    expect_succeeds(stubs, disk, "before")
    disk.fill(leave=6 * MIB)
    name = disk.submit(outer(stubs, 1200, "large")).job.name  # a result of 11 MiB
    failed = disk.wait(name)
    assert failed.state == stubs.job_pb2.JOB_STATE_FAILED
    assert failed.error.reason == "STORAGE_FULL"
    expect_works(stubs, disk)
    disk.make_room()
    expect_succeeds(stubs, disk, "after", size=1200)


def test_a_submission_to_a_full_disk_is_refused(stubs, disk, error_of):
    expect_succeeds(stubs, disk, "before")
    disk.fill()
    with pytest.raises(grpc.RpcError) as raised:
        disk.submit(outer(stubs, 10, "one"))
    assert error_of(raised.value)[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL")
    expect_works(stubs, disk)
    disk.make_room()
    expect_succeeds(stubs, disk, "one")


def test_a_disk_that_fills_under_a_running_job_ends_no_server(stubs, disk):
    # What is stored until the end may find room in the store's own log.
    name = disk.submit(chain(stubs, "running")).job.name
    disk.fill()
    ended = disk.wait(name)
    if ended.state != stubs.job_pb2.JOB_STATE_SUCCEEDED:
        assert ended.state == stubs.job_pb2.JOB_STATE_FAILED
        assert ended.error.reason == "STORAGE_FULL"
    expect_works(stubs, disk)
    disk.make_room()
    expect_succeeds(stubs, disk, "after")
    disk.jobs.DeleteJob(stubs.job_pb2.DeleteJobRequest(name=name), timeout=PATIENCE)


@pytest.mark.parametrize("size", [10, 600, 1200])
def test_deleting_a_job_makes_room_on_a_full_disk(stubs, disk, size):
    name = expect_succeeds(stubs, disk, "large", size=size)
    disk.fill()
    disk.jobs.DeleteJob(stubs.job_pb2.DeleteJobRequest(name=name), timeout=PATIENCE)
    expect_succeeds(stubs, disk, "after", size=size * 8 // 10)


def test_a_job_is_cancelled_on_a_full_disk(stubs, disk):
    name = disk.submit(chain(stubs, "running")).job.name
    disk.fill()
    disk.jobs.CancelJob(stubs.job_pb2.CancelJobRequest(name=name), timeout=PATIENCE)
    # It may have failed before.
    ended = (stubs.job_pb2.JOB_STATE_CANCELLED, stubs.job_pb2.JOB_STATE_FAILED)
    state = disk.wait(name).state
    assert state in ended
    disk.kill()
    disk.start(BUDGET)
    assert disk.wait(name).state == state


def test_a_server_starts_on_a_full_disk(stubs, disk):
    name = expect_succeeds(stubs, disk, "before", size=600)
    disk.fill()
    disk.kill()
    disk.start(BUDGET)
    expect_works(stubs, disk)
    assert len(disk.read(name)[1]) == 8 * 600 * 600
    disk.make_room()
    expect_succeeds(stubs, disk, "after", size=600)
