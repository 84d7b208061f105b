"""Private servers, sizes, and errors of calls."""

import os
import pathlib
import signal
import subprocess
import sys

import grpc
import numpy as np
import pytest

import tenon
from tenon import _wire, errors


def test_a_private_server_goes_with_its_client():
    client = tenon.Client()
    folder = pathlib.Path(client.address.removeprefix("unix:")).parent
    assert folder.stat().st_mode & 0o77 == 0
    assert client.einsum("a->", [1.0, 2.0]) == 3
    process = client._connection.local._process
    client.close()
    assert process.poll() == 0 and not folder.exists()


def test_a_private_server_that_is_gone_is_unavailable():
    with tenon.Client() as client:
        client._connection.local._process.kill()
        client._connection.local._process.wait()
        with pytest.raises(tenon.Unavailable):
            client.einsum("a->", [1.0])


def test_a_private_server_that_does_not_start_says_why():
    with pytest.raises(tenon.Unavailable, match="memory_budget"):
        tenon.Client(flags=["--memory_budget=lots"])
    with pytest.raises(tenon.Unavailable, match="no program 'no-such-tenond'"):
        tenon.Client(tenond="no-such-tenond")


def test_the_default_client_is_made_once(monkeypatch):
    tenon.set_default_client(None)
    try:
        assert tenon.einsum("a,a->", [1.0, 2.0], [3.0, 4.0]) == 11
        first = tenon.default_client()
        assert tenon.contract([(0,)], [], None, [np.ones(3)]) == 3
        assert tenon.default_client() is first
        first.close()
    finally:
        tenon.set_default_client(None)


def test_leaving_a_call_cancels_it(client):
    """As Ctrl-C does in a notebook."""

    def interrupt(_):
        raise KeyboardInterrupt

    n = 1200
    a = np.ones((n, n), np.float32)
    with pytest.raises(KeyboardInterrupt):
        client.einsum("ab,bc,cd,de,ef->af", a, a, a, a, a, on_progress=interrupt,
                      progress_interval=0.001)
    assert client.einsum("a->", [1.0]) == 1  # the server has time for others


def test_no_token_goes_to_other_machines_in_the_clear():
    with pytest.raises(tenon.InvalidRequest, match="tls"):
        tenon.Client("example.org:50551", token="secret")


def test_a_server_that_is_not_there():
    with tenon.Client("127.0.0.1:1") as client:
        with pytest.raises(tenon.Unavailable) as caught:
            client.einsum("a->", [1.0], timeout=5)
    assert isinstance(caught.value, ConnectionError)


@pytest.mark.parametrize("text,size", [
    (7, 7), ("7", 7), ("4GiB", 4 << 30), ("1.5 kb", 1500), ("2 MiB", 2 << 20)])
def test_sizes(text, size):
    assert tenon.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4 GiBs", "-1", True])
def test_bad_sizes(text):
    with pytest.raises(ValueError):
        tenon.parse_bytes(text)


class FakeRpcError(grpc.RpcError):
    def __init__(self, code, details, trailers=()):
        self._code, self._details, self._trailers = code, details, trailers

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._trailers


def test_details_that_are_cut_off_do_no_harm():
    whole = b"\x08\x03\x12\x03bad\x1a\x20" + b"x" * 32
    for end in range(len(whole)):
        error = errors.from_rpc(FakeRpcError(grpc.StatusCode.INVALID_ARGUMENT, "bad",
                                             [("grpc-status-details-bin", whole[:end])]))
        assert isinstance(error, tenon.InvalidRequest) and error.message == "bad"


def test_the_reason_may_stand_in_the_message():
    error = errors.from_rpc(FakeRpcError(grpc.StatusCode.ABORTED, "SLOW_READER: did not read"))
    assert (error.reason, error.message) == ("SLOW_READER", "did not read")


def test_varints():
    assert list(_wire.fields(b"\x08\xac\x02")) == [(1, 300)]
    for bad in (b"\x08", b"\x08\xff" + b"\xff" * 12, b"\x0a\x05ab", b"\x0b"):
        with pytest.raises(ValueError):
            list(_wire.fields(bad))


_INTERRUPTED = """
import itertools
import sys
import numpy as np
import tenon

def begun(_):
    print("begun", flush=True)

with tenon.Client(flags=["--concurrent_requests=1"]) as client:
    small = np.ones((90, 90))  # inside the header
    large = np.ones((1600, 1600))
    try:
        if sys.argv[1] == "inline":
            pairs = [x + y for x, y in itertools.combinations("abcdef", 2)]
            client.einsum(",".join(pairs) + "->", *[small] * len(pairs), on_progress=begun,
                          progress_interval=0.001, max_trials=1)
        elif sys.argv[1] == "chunks":
            client.einsum("ab,bc,cd,de,ef,fg,gh,hi,ij->aj", *[large] * 9, on_progress=begun,
                          progress_interval=0.001)
        else:
            inputs = [(k, (k + 1) % 60, (k * 7) % 60) for k in range(60)]
            client.plan(inputs, [], dict.fromkeys(range(60), 4), max_time=60, on_improvement=begun)
    except KeyboardInterrupt:
        print("interrupted", client.einsum("a->", [1.0], timeout=20), flush=True)
"""


@pytest.mark.parametrize("kind", ["inline", "chunks", "plan"])
def test_ctrl_c_cancels(kind):
    """In a process of its own, which the signal is sent to while it waits for the server."""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(tenon.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", _INTERRUPTED, kind], env=environment, text=True,
                          stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.read().splitlines()[-1] == "interrupted 1.0"
    assert child.returncode == 0
