"""A rolling update under load: clients that honour readiness and retry UNAVAILABLE lose no call.

Two servers, one of which is told to stop, as a platform does it. The clients are the plain ones of
the contract: they pick a server whose health says SERVING, and retry UNAVAILABLE on whatever server
is healthy then.
"""

import signal
import struct
import threading
import time

import grpc
import pytest

SERVING = b"\x08\x01"
RETRIES = 60
PAUSE = 0.05  # between two tries


class Client(threading.Thread):
    """Calls until told to stop; every call must succeed in the end."""

    def __init__(self, stubs, servers, stop):
        super().__init__()
        self.stubs, self.servers, self.stop = stubs, servers, stop
        self.calls, self.retried, self.failed = 0, 0, []
        raw = dict(request_serializer=lambda x: x, response_deserializer=lambda x: x)
        self.health = [s.channel.unary_unary("/grpc.health.v1.Health/Check", **raw)
                       for s in servers]
        self.contract = [stubs.contraction_pb2_grpc.ContractionServiceStub(s.channel).Contract
                         for s in servers]
        pb2 = stubs.contraction_pb2
        header = pb2.ContractHeader()
        for indices in ("ab", "bc"):
            operand = header.network.operands.add(
                indices=list(indices), inline_data=struct.pack("<4d", 1, 2, 3, 4))
            operand.spec.dtype = stubs.tensor_pb2.DATA_TYPE_FLOAT64
            operand.spec.shape.extend([2, 2])
        header.network.output.extend("ac")
        self.request = pb2.ContractRequest(header=header)

    def pick(self):
        """The first server that says it serves, or None."""
        for index, check in enumerate(self.health):
            try:
                if check(b"", timeout=10) == SERVING:
                    return index
            except grpc.RpcError:
                pass  # it is gone, or not there yet
        return None

    def call(self):
        last = None
        for _ in range(RETRIES):
            index = self.pick()
            if index is not None:
                try:
                    answers = list(self.contract[index](iter([self.request]), timeout=30))
                    assert struct.unpack("<4d", answers[-1].single.results[0].inline_data) == (
                        7, 10, 15, 22)
                    return None
                except grpc.RpcError as error:
                    last = error
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
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


def under_load(stubs, servers, act, clients=3):
    """Runs `act` while clients call, and lets them go on until each has made calls after it."""
    stop = threading.Event()
    threads = [Client(stubs, servers, stop) for _ in range(clients)]
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
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, [t.calls for t in threads]
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


def test_no_call_is_lost_when_a_server_is_told_to_stop_while_it_starts(stubs, start_server):
    serving = start_server()
    serving.wait_until_ready(stubs)
    starting = start_server("--drain_delay=1s")
    # In front, so that clients would take it as soon as it said that it served.
    under_load(stubs, [starting, serving], lambda: (
        starting.process.send_signal(signal.SIGTERM),
        starting.process.wait(timeout=60)))
    assert starting.process.returncode == 0, starting.text()
