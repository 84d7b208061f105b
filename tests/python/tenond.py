"""Generated stubs and server processes, for the tests and the benchmarks."""

import importlib
import importlib.util
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import types

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 60


def generate_stubs(out):
    """Generates the stubs of proto/ in the folder `out` and imports them.

    Returns a namespace with every tenon.v1 module, e.g. contraction_pb2, and google.rpc details.
    """
    plugin = shutil.which("grpc_python_plugin")
    assert plugin, "grpc_python_plugin (package protobuf-compiler-grpc) is missing"
    protos = sorted(str(p.relative_to(ROOT / "proto")) for p in (ROOT / "proto").rglob("*.proto"))
    subprocess.run(
        ["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={out}", f"--grpc_out={out}",
         f"--plugin=protoc-gen-grpc={plugin}", *protos],
        check=True)
    sys.path.insert(0, str(out))
    names = types.SimpleNamespace()
    for proto in protos:
        if not proto.startswith("tenon/"):
            continue
        module = proto[:-len(".proto")].replace("/", ".")
        stem = module.rsplit(".", 1)[1]
        setattr(names, stem + "_pb2", importlib.import_module(module + "_pb2"))
        setattr(names, stem + "_pb2_grpc", importlib.import_module(module + "_pb2_grpc"))
    # google.rpc may be installed as a package; load our declarations by file.
    spec = importlib.util.spec_from_file_location(
        "status_details_pb2", pathlib.Path(out) / "google" / "rpc" / "status_details_pb2.py")
    names.status_details_pb2 = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(names.status_details_pb2)
    return names


class Tenond:
    """A server process on free ports; `address` and `metrics` are host:port."""

    def __init__(self, binary, folder, *flags, env=None):
        folder = pathlib.Path(folder)
        self.log = open(folder / "log", "wb+")
        port_file = folder / "port"
        self.process = subprocess.Popen(
            [str(binary), "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0",
             f"--port_file={port_file}", "--drain_delay=0s", *flags],
            stderr=self.log, env=env)
        deadline = time.monotonic() + START_SECONDS
        while not (port_file.exists() and len(port_file.read_text().split()) >= 2):
            assert self.process.poll() is None, "tenond exited: " + self.text()
            assert time.monotonic() < deadline, "tenond did not bind: " + self.text()
            time.sleep(0.02)
        port, metrics_port = port_file.read_text().split()[:2]
        self.address, self.metrics = f"127.0.0.1:{port}", f"127.0.0.1:{metrics_port}"
        self.channel = grpc.insecure_channel(self.address)

    def wait_until_ready(self, stubs):
        """Waits through the STARTING answers."""
        stub = stubs.provider_pb2_grpc.ProviderServiceStub(self.channel)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                info = stub.GetServerInfo(stubs.provider_pb2.GetServerInfoRequest(), timeout=10)
                if info.state == stubs.provider_pb2.SERVER_STATE_READY:
                    return info
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            assert time.monotonic() < deadline, "tenond did not become ready: " + self.text()
            time.sleep(0.02)

    def text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self):
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)
