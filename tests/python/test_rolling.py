"""A rolling update under load: clients that honour readiness and retry UNAVAILABLE lose no call.

Two servers, one of which is told to stop, as a platform does it. The clients are the plain ones of
the contract: they pick a server whose health says SERVING, and retry UNAVAILABLE on whatever server
is healthy then.
"""

import signal
import threading
import time

import grpc
import numpy as np
import pytest

from test_contraction import call, chunks, header
from test_measurement import chunk_frames, header as measure_header, projection, specs

SERVING = b"\x08\x01"
RETRIES = 60
PAUSE = 0.05  # between two tries
PATIENCE = 120


def no_hold():
    """A call that nobody holds back."""


class Hold:
    """Stops a call in its middle: `reached` tells that it is there, `release` lets it go on."""

    def __init__(self):
        self.reached, self.release = threading.Event(), threading.Event()

    def __call__(self):
        self.reached.set()
        assert self.release.wait(timeout=PATIENCE)


def small_contraction(stubs, server, hold=no_hold):
    a = np.array([[1.0, 2], [3, 4]])
    hold()
    answers = call(stubs, server, [header(stubs, ["ab", "bc"], ["a", "c"], [a, a])])
    assert answers[-1].single.results[0].inline_data == (a @ a).tobytes()


def in_two_halves(first, second, hold):
    """Frames, the second half of which waits for `going` to be set and for `hold`."""
    going = threading.Event()

    def frames():
        yield from first
        going.wait()
        hold()
        yield from second

    return going, frames()


def chunked_contraction(stubs, server, hold=no_hold):
    """Held when half of an operand has been uploaded."""
    a, b = (np.arange(500.0 * 600).reshape(500, 600) % n for n in (17, 13))
    frames = [header(stubs, ["ij", "kj"], ["i", "k"], [a, b], inline=False),
              *chunks(stubs, 0, a), *chunks(stubs, 1, b)]
    going, requests = in_two_halves(frames[:3], frames[3:], hold)
    result = b""
    try:
        stub = stubs.contraction_pb2_grpc.ContractionServiceStub(server.channel)
        for answer in stub.Contract(requests, timeout=PATIENCE):
            going.set()  # the header is accepted
            if answer.WhichOneof("frame") == "chunk":
                result += answer.chunk.data
    finally:
        going.set()
    assert result == (a @ b.T).tobytes()  # of integers: every order of summation gives it


def measurement(stubs, server, hold=no_hold):
    """Held when the first of four projections has its scores."""
    hd = np.random.default_rng(3).normal(size=(200, 5))
    ld = hd[:, :2].copy()
    going, requests = in_two_halves(
        [measure_header(stubs, specs(stubs, "stress"), hd),
         *chunk_frames(stubs, "dataset_chunk", hd), projection(stubs, 0, ld)],
        [projection(stubs, n, ld) for n in range(1, 4)], hold)
    scores, last = [], None
    try:
        stub = stubs.measurement_pb2_grpc.MeasurementServiceStub(server.channel)
        for last in stub.Measure(requests, timeout=PATIENCE):
            if last.WhichOneof("frame") == "scores":
                scores.append(last.scores.specs[0].values["stress"])
                going.set()
    finally:
        going.set()
    assert len(scores) == 4 and len(set(scores)) == 1
    assert last.summary.stream_complete and last.summary.scored_count == 4


def job(stubs, server, hold=no_hold):
    """A job from its submission to its result; held in the middle of reading that."""
    a, b = np.arange(1000.0), np.arange(1000.0)
    pb, stub = stubs.job_pb2, stubs.job_pb2_grpc.JobServiceStub(server.channel)
    request = header(stubs, ["i", "j"], ["i", "j"], [a, b])
    frame = pb.SubmitContractionRequest(
        header=pb.SubmitContractionHeader(contraction=request.header))
    name = stub.SubmitContraction(iter([frame]), timeout=PATIENCE).job.name
    for watched in stub.WatchJob(pb.WatchJobRequest(name=name), timeout=PATIENCE):
        state = watched.job.state
    assert state == pb.JOB_STATE_SUCCEEDED
    result = b""
    for answer in stub.ReadResult(pb.ReadResultRequest(name=name), timeout=PATIENCE):
        if answer.WhichOneof("frame") == "chunk":
            result += answer.chunk.data
            hold()
    assert result == np.outer(a, b).tobytes()


KINDS = (small_contraction, chunked_contraction, measurement, job)


class Client(threading.Thread):
    """Calls until told to stop; every call must succeed in the end.

    `act(stubs, server)` is one call: it raises RpcError, or AssertionError on a wrong answer.
    """

    def __init__(self, stubs, servers, stop, act):
        super().__init__()
        self.stubs, self.servers, self.stop, self.act = stubs, servers, stop, act
        self.calls, self.retried, self.failed = 0, 0, []
        raw = dict(request_serializer=lambda x: x, response_deserializer=lambda x: x)
        self.health = [s.channel.unary_unary("/grpc.health.v1.Health/Check", **raw)
                       for s in servers]

    def pick(self):
        """The first server that says it serves, or None."""
        for server, check in zip(self.servers, self.health):
            try:
                if check(b"", timeout=10) == SERVING:
                    return server
            except grpc.RpcError:
                pass  # it is gone, or not there yet
        return None

    def call(self):
        last = None
        for _ in range(RETRIES):
            server = self.pick()
            if server is not None:
                try:
                    self.act(self.stubs, server)
                    return None
                except grpc.RpcError as error:
                    last = error
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
                        return error
                except AssertionError as error:
                    return error
            self.retried += 1
            time.sleep(PAUSE)
        return last

    def run(self):
        while not self.stop.is_set():
            error = self.call()
            self.calls += 1
            if error is not None:
                self.failed.append(error)


class HeldCall(Client):
    """One call of the same kind, that is held in its middle."""

    def __init__(self, stubs, servers, act):
        self.hold, stop = Hold(), threading.Event()
        super().__init__(stubs, servers, stop,
                         lambda stubs, server: act(stubs, server, self.hold))
        stop.set()
        self.kind = act.__name__

    def run(self):
        error = self.call()
        self.failed += [error] if error is not None else []


def under_load(stubs, servers, act, kinds=(small_contraction,) * 3):
    """Runs `act` while clients call, and lets them go on until each has made calls after it."""
    stop = threading.Event()
    threads = [Client(stubs, servers, stop, kind) for kind in kinds]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: all(thread.calls >= 5 for thread in threads), threads)
        act()
        before = [thread.calls for thread in threads]
        wait_for(lambda: all(t.calls >= b + 5 for t, b in zip(threads, before)), threads)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert [str(error) for thread in threads for error in thread.failed] == []


def wait_for(condition, threads):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, [(t.calls, t.failed) for t in threads]
        time.sleep(0.01)


@pytest.mark.parametrize("signals,delay", [(1, "1s"), (2, "60s")])
def test_no_call_is_lost_when_a_server_is_told_to_stop(stubs, start_server, signals, delay):
    first, second = start_server(f"--drain_delay={delay}"), start_server()
    for server in (first, second):
        server.wait_until_ready(stubs)

    def stop_first():
        first.process.send_signal(signal.SIGTERM)
        if signals == 2:  # the first must have been taken: two that wait are one
            check = first.channel.unary_unary("/grpc.health.v1.Health/Check")
            while check(b"", timeout=10) == SERVING:
                time.sleep(0.01)
            first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(timeout=60) == 0, first.text()

    under_load(stubs, [first, second], stop_first)


@pytest.mark.parametrize("signals", [1, 2])
def test_streams_in_flight_are_not_lost_when_their_server_is_told_to_stop(
        stubs, start_server, tmp_path, signals):
    first, second = (start_server(f"--state_dir={tmp_path / name}", f"--drain_delay={delay}")
                     for name, delay in (("first", "1s"), ("second", "0s")))
    for server in (first, second):
        server.wait_until_ready(stubs)
    held = [HeldCall(stubs, [first, second], kind) for kind in KINDS[1:]]
    for thread in held:
        thread.start()

    def stop_first():
        for thread in held:
            assert thread.hold.reached.wait(timeout=PATIENCE), (thread.kind, thread.failed)
        first.process.send_signal(signal.SIGTERM)
        wait_for(lambda: " draining " in first.text(), held)
        if signals == 2:  # which ends what is in flight: they are to be called again
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(timeout=PATIENCE) == 0, first.text()
        for thread in held:
            thread.hold.release.set()
        assert first.process.wait(timeout=PATIENCE) == 0, first.text()

    try:
        under_load(stubs, [first, second], stop_first, kinds=KINDS)
    finally:
        for thread in held:
            thread.hold.release.set()
            thread.join()
    assert [(t.kind, str(error)) for t in held for error in t.failed] == []
    # Within the grace period they end where they began.
    assert {t.kind: t.retried > 0 for t in held} == {t.kind: signals == 2 for t in held}


def test_no_call_is_lost_when_a_server_is_told_to_stop_while_it_starts(stubs, start_server):
    serving = start_server()
    serving.wait_until_ready(stubs)
    starting = start_server("--drain_delay=1s")
    # In front, so that clients would take it as soon as it said that it served.
    under_load(stubs, [starting, serving], lambda: (
        starting.process.send_signal(signal.SIGTERM),
        starting.process.wait(timeout=60)))
    assert starting.process.returncode == 0, starting.text()
