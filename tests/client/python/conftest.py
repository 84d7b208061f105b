"""The package as it would be installed, and a private server of this build.

With TENON_PACKAGE=installed it is the one that is installed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("TENON_BUILD_DIR", ROOT / "build"))


def make_package(out):
    """The package with its generated stubs, in a folder for sys.path."""
    shutil.copytree(ROOT / "client" / "python" / "tenon", out / "tenon")
    plugin = shutil.which("grpc_python_plugin")
    assert plugin, "grpc_python_plugin (package protobuf-compiler-grpc) is missing"
    protos = sorted(str(path) for path in (ROOT / "proto" / "tenon" / "v1").glob("*.proto"))
    subprocess.run(["protoc", f"-I{ROOT / 'proto'}", f"--python_out={out}", f"--grpc_out={out}",
                    f"--plugin=protoc-gen-grpc={plugin}", *protos], check=True)


def pytest_configure(config):
    """Before the tests are imported: they import tenon."""
    os.environ["TENON_TENOND"] = str(BUILD / "server" / "tenond")
    os.environ.pop("TENON_SERVER", None)
    if os.environ.get("TENON_PACKAGE") == "installed":
        return
    folder = tempfile.TemporaryDirectory(prefix="tenon-package-")
    config.add_cleanup(folder.cleanup)
    make_package(pathlib.Path(folder.name))
    sys.path.insert(0, folder.name)


@pytest.fixture(scope="session")
def client():
    import tenon
    with tenon.Client(flags=["--memory_budget=1GiB"]) as made:
        yield made
