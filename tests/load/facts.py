"""What a result says of the machine and the server that it comes from."""

import os
import pathlib
import platform


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def machine_facts():
    return {"cpu": cpu_model(), "cores": os.cpu_count(), "load": os.getloadavg()}


def server_facts(info):
    """`info`: the answer of GetServerInfo."""
    return {"version": info.version, "commit": info.commit, "grpc": info.build.grpc_version,
            "protobuf": info.build.protobuf_version, "build": info.build.type,
            "threads": info.host.threads, "isa": info.host.isa}
