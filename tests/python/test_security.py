"""Tokens, certificates, ownership, administration and SIGHUP, through generated stubs alone."""

import hashlib
import json
import signal
import subprocess
import time

import grpc
import pytest

from conftest import BUILD

TOOL = BUILD / "client" / "cpp" / "tenon"


def line(name, role="compute"):
    return f"{name} {role} {hashlib.sha256(f'token-of-{name}'.encode()).hexdigest()}\n"


def as_caller(name):
    return [("authorization", f"Bearer token-of-{name}")]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_certificate(folder, name, authority=None, alternatives=None):
    """NAME.pem and NAME.key in `folder`, signed by `authority` of the same folder or by itself."""
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
               "-days", "2", "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key",
               "-out", folder / f"{name}.pem"]
    if authority:
        command += ["-CA", folder / f"{authority}.pem", "-CAkey", folder / f"{authority}.key"]
    if alternatives:
        command += ["-addext", f"subjectAltName={alternatives}"]
    openssl(*command)


@pytest.fixture
def folder(tmp_path):
    make_certificate(tmp_path, "ca")
    make_certificate(tmp_path, "server", "ca", "IP:127.0.0.1")
    return tmp_path


def secure_channel(folder, address, client=None, ca="ca"):
    read = lambda name: (folder / name).read_bytes()  # noqa: E731
    return grpc.secure_channel(
        address,
        grpc.ssl_channel_credentials(read(f"{ca}.pem"), read(f"{client}.key") if client else None,
                                     read(f"{client}.pem") if client else None),
        options=[("grpc.use_local_subchannel_pool", 1)])


def ask(stubs, channel, metadata=None):
    """The code with which the server answers a harmless question."""
    stub = stubs.provider_pb2_grpc.ProviderServiceStub(channel)
    try:
        stub.GetServerInfo(stubs.provider_pb2.GetServerInfoRequest(), timeout=30, metadata=metadata)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def wait_for(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def upload(stubs, channel, metadata):
    spec = stubs.tensor_pb2.TensorSpec(dtype=stubs.tensor_pb2.DATA_TYPE_FLOAT32, shape=[2, 2])
    header = stubs.dataset_pb2.CreateTensorHeader(spec=spec, inline_data=b"\0" * 16)
    stub = stubs.dataset_pb2_grpc.DatasetServiceStub(channel)
    answer = stub.CreateTensor(iter([stubs.dataset_pb2.CreateTensorRequest(header=header)]),
                               timeout=30, metadata=metadata)
    return answer.tensor


def test_tokens_over_tls_and_whose_tensors_they_open(stubs, folder, start_server, error_of):
    (folder / "tokens").write_text(line("alice") + line("bob") + line("root", "admin"))
    server = start_server(f"--tls_cert={folder}/server.pem", f"--tls_key={folder}/server.key",
                          f"--token_file={folder}/tokens")
    channel = secure_channel(folder, server.address)
    wait_for(lambda: ask(stubs, channel, as_caller("alice")) == "OK", server.text())
    assert ask(stubs, channel) == "UNAUTHENTICATED"
    assert ask(stubs, channel, as_caller("mallory")) == "UNAUTHENTICATED"
    assert ask(stubs, server.channel, as_caller("alice")) == "UNAVAILABLE"  # not encrypted
    tensor = upload(stubs, channel, as_caller("alice"))
    assert tensor.owner == "alice"
    stub = stubs.dataset_pb2_grpc.DatasetServiceStub(channel)
    request = stubs.dataset_pb2.GetTensorRequest(name=tensor.name)
    assert stub.GetTensor(request, metadata=as_caller("alice")).tensor.name == tensor.name
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetTensor(request, metadata=as_caller("bob"))
    assert error_of(caught.value)[:2] == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    everything = stub.ListTensors(stubs.dataset_pb2.ListTensorsRequest(all_owners=True),
                                  metadata=as_caller("root"))
    assert [one.owner for one in everything.tensors] == ["alice"]
    admin = stubs.admin_pb2_grpc.AdminServiceStub(channel)
    with pytest.raises(grpc.RpcError) as caught:
        admin.Drain(stubs.admin_pb2.DrainRequest(), metadata=as_caller("bob"))
    assert error_of(caught.value)[:2] == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
    answer = admin.Drain(stubs.admin_pb2.DrainRequest(), metadata=as_caller("root"))
    assert answer.state in (stubs.provider_pb2.SERVER_STATE_LAME_DUCK,
                            stubs.provider_pb2.SERVER_STATE_DRAINING)
    assert server.process.wait(timeout=60) == 0
    assert "token-of" not in server.text()  # nor does any token get into the log


def test_client_certificates(stubs, folder, start_server):
    make_certificate(folder, "carol", "ca", "URI:spiffe://test/carol")
    make_certificate(folder, "mallory")
    server = start_server(f"--tls_cert={folder}/server.pem", f"--tls_key={folder}/server.key",
                          f"--tls_client_ca={folder}/ca.pem")
    channel = secure_channel(folder, server.address, "carol")
    wait_for(lambda: ask(stubs, channel) == "OK", server.text())
    assert upload(stubs, channel, None).owner == "spiffe://test/carol"
    for client in (None, "mallory"):
        assert ask(stubs, secure_channel(folder, server.address, client)) == "UNAVAILABLE", client


def test_certificates_rotate_without_a_restart(stubs, folder, start_server):
    server = start_server(f"--tls_cert={folder}/server.pem", f"--tls_key={folder}/server.key",
                          "--tls_reload_interval=20ms")
    old = secure_channel(folder, server.address)
    wait_for(lambda: ask(stubs, old) == "OK", server.text())
    (folder / "server.pem").write_text("broken")
    wait_for(lambda: "the certificates stay as they were" in server.text(), "nothing in the log")
    assert ask(stubs, secure_channel(folder, server.address)) == "OK"
    make_certificate(folder, "ca2")
    make_certificate(folder, "server", "ca2", "IP:127.0.0.1")
    wait_for(lambda: ask(stubs, secure_channel(folder, server.address, ca="ca2")) == "OK",
             server.text())
    assert ask(stubs, old) == "OK"  # connections that are open go on


def test_sighup_reads_settings_and_tokens_anew(stubs, folder, start_server):
    config = folder / "config.json"
    tokens = folder / "tokens"
    tokens.write_text(line("alice"))
    settings = {"token_file": str(tokens), "max_queued_requests": 7, "dataset_ttl": "1h"}
    config.write_text(json.dumps(settings))
    server = start_server(f"--config={config}")
    wait_for(lambda: ask(stubs, server.channel, as_caller("alice")) == "OK", server.text())
    stub = stubs.provider_pb2_grpc.ProviderServiceStub(server.channel)

    def limits(name):
        request = stubs.provider_pb2.GetServerInfoRequest()
        return stub.GetServerInfo(request, metadata=as_caller(name)).limits

    assert limits("alice").max_queue_length == 7
    reloads = 0

    def hang_up(event):
        nonlocal reloads
        before = server.text().count(event)
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: server.text().count(event) > before, server.text())
        reloads += 1

    # A broken file, of settings or of tokens, changes nothing.
    config.write_text(json.dumps({**settings, "max_queued_requests": 8})[:-1])
    hang_up("reload failed")
    config.write_text(json.dumps({**settings, "max_queued_requests": 8}))
    tokens.write_text(line("bob") + "mallory\n")
    hang_up("reload failed")
    assert limits("alice").max_queue_length == 7

    config.write_text(json.dumps({**settings, "max_queued_requests": 9, "dataset_ttl": "2h",
                                  "write_stall_timeout": "5s", "log_level": "debug",
                                  "memory_budget": "64MiB", "kill_limit": "7s",
                                  "threads": 1}))
    tokens.write_text(line("bob"))
    hang_up(" reloaded ")
    assert ask(stubs, server.channel, as_caller("alice")) == "UNAUTHENTICATED"
    now = limits("bob")
    assert (now.max_queue_length, now.default_ttl_seconds, now.slow_reader_seconds) == (9, 7200, 5)
    assert now.memory_budget_bytes == 64 << 20
    text = server.text()
    assert "setting needs a restart setting=threads before=0 now=1" in text
    assert "setting changed setting=kill_limit" in text
    assert "setting changed setting=memory_budget" in text
    assert "setting changed setting=max_queued_requests before=7 now=9" in text
    # It is told again as long as it holds, and what was taken over is no news.
    hang_up(" reloaded ")
    text = server.text()
    assert text.count("setting=threads") == 2 and text.count("setting=max_queued_requests") == 1
    assert "RAW:" not in text  # the log is ours, line by line


@pytest.mark.parametrize("flags,name", [
    (["--tls_cert={0}/server.pem"], "tls_cert"),
    (["--tls_cert={0}/server.pem", "--tls_key={0}/ca.key"], "tls_key"),
    (["--tls_cert={0}/none", "--tls_key={0}/server.key"], "tls_cert"),
    (["--token_file={0}/ca.pem"], "token_file"),
    (["--admin_principals=a"], "admin_principals"),
    (["--listen=0.0.0.0:0"], "listen")])
def test_bad_settings_are_refused_at_the_start(folder, flags, name):
    result = subprocess.run([str(BUILD / "server" / "tenond"), "--check_config",
                             *(flag.format(folder) for flag in flags)],
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and f"--{name}" in result.stderr, result.stderr


def test_encrypted_addresses_may_be_reached_from_other_machines(folder):
    subprocess.run([str(BUILD / "server" / "tenond"), "--check_config", "--listen=0.0.0.0:0",
                    f"--tls_cert={folder}/server.pem", f"--tls_key={folder}/server.key"],
                   check=True, timeout=60)


def test_the_command_makes_tokens_and_calls_with_them(stubs, folder, start_server):
    def tool(*arguments, env=None):
        return subprocess.run([str(TOOL), *arguments], capture_output=True, text=True, timeout=60,
                              env=env)

    made = tool("token", "new", "root", "--role", "admin")
    token, entry = made.stdout.splitlines()
    (folder / "tokens").write_text(entry + "\n")
    (folder / "token").write_text(token + "\n")
    server = start_server(f"--tls_cert={folder}/server.pem", f"--tls_key={folder}/server.key",
                          f"--token_file={folder}/tokens")
    address = ["--server", server.address, "--tls-ca", str(folder / "ca.pem")]
    ready = tool("info", "--wait", "60", *address, "--token-file", str(folder / "token"))
    assert ready.returncode == 0, ready.stderr
    refused = tool("info", *address)
    assert refused.returncode == 3 and "UNAUTHENTICATED" in refused.stderr
    env = {"TENON_TOKEN": token}
    changed = tool("admin", "log-level", "debug", *address, env=env)
    assert (changed.returncode, changed.stdout) == (0, "the level was info\n"), changed.stderr
    trimmed = json.loads(tool("admin", "trim", "--caches", "--json", *address, env=env).stdout)
    assert trimmed["resident_after_bytes"] > 0
    drained = tool("admin", "drain", *address, env=env)
    assert drained.returncode == 0, drained.stderr
    assert server.process.wait(timeout=60) == 0
