"""A tenond of this build, and the programs of client/go and client/ruby as their pages run them."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("TENON_BUILD_DIR", ROOT / "build"))
sys.path.insert(0, str(ROOT / "tests" / "python"))

from tenond import Tenond, generate_stubs  # noqa: E402

# Go's first build compiles gRPC.
RUN_SECONDS = 300


def blocks(page, language):
    """The code blocks of a page of client/, for example of "go/README.md"."""
    text = (ROOT / "client" / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run_shell(script, folder, **environment):
    """Runs a block of a page, which stops at the first command that fails."""
    cache = os.environ.get("GOCACHE", str(BUILD.resolve() / "go-cache"))
    environment = {**os.environ, "GOCACHE": cache, **environment}
    return subprocess.run(["bash", "-ec", script], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=RUN_SECONDS)


def copy_of_the_repository(folder):
    """What the blocks of the pages read, in a folder where they may write `stubs`."""
    shutil.copytree(ROOT / "proto", folder / "proto")
    for language in ("go", "ruby"):
        shutil.copytree(ROOT / "client" / language, folder / "client" / language)
    return folder


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    return generate_stubs(tmp_path_factory.mktemp("python_stubs"))


@pytest.fixture(scope="session")
def server(stubs, tmp_path_factory):
    server = Tenond(BUILD / "server" / "tenond", tmp_path_factory.mktemp("tenond"))
    server.wait_until_ready(stubs)
    yield server
    assert server.stop() == 0, server.text()


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    return copy_of_the_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="session")
def programs(repository, server):
    """How the program of each language ended, run as its page says."""
    def run(language):
        (script,) = blocks(f"{language}/README.md", "sh")
        return run_shell(script, repository, TENON_SERVER=server.address)

    return {language: run(language) for language in ("go", "ruby")}
