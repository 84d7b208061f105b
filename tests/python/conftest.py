"""Fixtures: stubs generated from proto/, and a tenond of this build on a free port.

Nothing of a Tenon client library is used: these tests prove that another language can call the
service with generated stubs alone.
"""

import os
import pathlib

import pytest

from tenond import ROOT, Tenond, generate_stubs

BUILD = pathlib.Path(os.environ.get("TENON_BUILD_DIR", ROOT / "build"))
BINARY = BUILD / "server" / "tenond"


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """Namespace with every tenon.v1 module, e.g. stubs.contraction_pb2, and google.rpc details."""
    return generate_stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture(scope="session")
def server(stubs, tmp_path_factory):
    server = Tenond(BINARY, tmp_path_factory.mktemp("tenond"))
    server.wait_until_ready(stubs)
    yield server
    assert server.stop() == 0, server.text()


@pytest.fixture
def start_server(tmp_path):
    """Starts a server of the test's own: start_server("--flag=value", ...)."""
    servers = []

    def start(*flags):
        folder = tmp_path / f"tenond{len(servers)}"
        folder.mkdir()
        servers.append(Tenond(BINARY, folder, *flags))
        return servers[-1]

    yield start
    for started in servers:
        if started.process.poll() is None:
            started.process.kill()
            started.process.wait()


@pytest.fixture(scope="session")
def error_of(stubs):
    """error_of(rpc_error) -> (code, reason, fields, metadata) out of the google.rpc details."""

    def decode(error):
        details = stubs.status_details_pb2
        raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
        status = details.Status.FromString(raw)
        info, fields = details.ErrorInfo(), []
        for any_message in status.details:
            any_message.Unpack(info)
            bad_request = details.BadRequest()
            if any_message.Unpack(bad_request):
                fields = [violation.field for violation in bad_request.field_violations]
        assert info.domain == "tenon"
        return error.code(), info.reason, fields, dict(info.metadata)

    return decode
