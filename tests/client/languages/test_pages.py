"""Every code block of the pages of client/ runs, or is a piece of what runs."""

import base64
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from conftest import ROOT, blocks, copy_of_the_repository, run_shell
from test_examples import scores

PAGES = ["README.md", "go/README.md", "ruby/README.md"]
ADDRESS = "127.0.0.1:50551"
HERE = ROOT / "tests" / "client" / "languages"


@pytest.fixture(scope="module")
def shell(server, tmp_path_factory):
    """Runs a block of grpcurl lines against the server, with grpcurl.py as grpcurl."""
    folder = copy_of_the_repository(tmp_path_factory.mktemp("grpcurl"))
    modules, programs = folder / "modules", folder / "bin"
    modules.mkdir()
    programs.mkdir()
    subprocess.run(["protoc", f"-I{HERE}", f"--python_out={modules}", "reflection.proto"],
                   check=True)
    program = programs / "grpcurl"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={modules} exec {sys.executable} '
                       f'{HERE}/grpcurl.py "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}

    def run(script):
        assert ADDRESS in script
        return run_shell(script.replace(ADDRESS, server.address), folder, **environment)

    return run


def messages(text):
    """JSON objects that stand one after the other."""
    decoder, found = json.JSONDecoder(), []
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


def check_types(result):
    assert result.returncode == 0, result.stderr
    services, rest = result.stdout.split("rpc Contract", 1)
    assert {"tenon.v1.ContractionService", "tenon.v1.MeasurementService",
            "grpc.health.v1.Health"} <= set(services.split())
    signature, answers = rest.split(";", 1)
    assert ".tenon.v1.ContractRequest" in signature and ".tenon.v1.ContractResponse" in signature
    info, measures = messages(answers)
    assert info["state"] == "SERVER_STATE_READY"
    assert [measure["alias"] for measure in measures["measures"]] == ["tnc"]


def check_contraction(result):
    assert result.returncode == 0, result.stderr
    (answer,) = messages(result.stdout)
    (product,) = answer["single"]["results"]
    a, b = np.array([[1, 2], [3, 4]]), np.array([[0.5, 0], [0, 2]])
    values = np.frombuffer(base64.b64decode(product["inlineData"]), np.float32)
    np.testing.assert_array_equal(values.reshape(2, 2), a @ b)


def check_refusal(result):
    assert result.returncode == 64 + 3  # INVALID_ARGUMENT
    assert "index 'b' has size 4" in result.stderr


def check_plan(result):
    assert result.returncode == 0, result.stderr
    estimate, *_, last = messages(result.stdout)
    assert estimate["resultSpec"]["shape"] == ["500", "20"]
    assert int(estimate["plannedPeakBytes"]) > 0
    # bc, cd first: 20 * 500 * 20 multiply-adds; then ab with it: 500 * 20 * 20.
    flops = 10 ** last["plan"]["plan"]["total"]["log10Flops"]
    assert flops == pytest.approx(20 * 500 * 20 + 500 * 20 * 20)


def check_measurement(result):
    assert result.returncode == 0, result.stderr
    answers = messages(result.stdout)
    rows = np.array([[0, 0, 0], [9, 1, 0], [2, 8, 1], [7, 7, 3], [4, 3, 9], [1, 5, 6]], float)
    told = [answer["scores"] for answer in answers if "scores" in answer]
    assert [item["name"] for item in told] == ["first and second", "second and third"]
    for item, columns in zip(told, ([0, 1], [1, 2])):
        values = {**item["specs"][0]["values"], **item["specs"][1]["values"]}
        assert values == pytest.approx(scores(rows, rows[:, columns], k=2), rel=1e-12)
    assert answers[-1]["summary"]["scoredCount"] == "2"


def check_protoset(result):
    assert result.returncode == 0, result.stderr
    (answer,) = messages(result.stdout)
    assert "cpu" in [provider["name"] for provider in answer["providers"]]


# Of each `sh` block of client/README.md, in order.
CHECKS = [check_types, check_contraction, check_refusal, check_plan, check_measurement,
          check_protoset]


@pytest.mark.parametrize("number,check", list(enumerate(CHECKS)),
                         ids=[check.__name__ for check in CHECKS])
def test_grpcurl_lines(shell, number, check):
    check(shell(blocks("README.md", "sh")[number]))


def test_no_block_is_left_out():
    """Shell blocks have a check or are run by the fixture `programs`; no language is unknown."""
    assert len(blocks("README.md", "sh")) == len(CHECKS)
    for page in PAGES:
        found = set(re.findall(r"^```(\S*)$", (ROOT / "client" / page).read_text(), re.MULTILINE))
        assert found <= {"", "sh", "go", "ruby", "text"}
        if page != "README.md":
            assert len(blocks(page, "sh")) == 1


def words(text):
    """A text without its indentation and line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("language,pattern", [("go", "*.go"), ("ruby", "*.rb")])
def test_pieces_of_programs_are_what_runs(language, pattern):
    sources = [words(path.read_text()) for path in (ROOT / "client" / language).glob(pattern)]
    for page in PAGES:
        for block in blocks(page, language):
            assert any(words(block) in source for source in sources), block
    assert blocks(f"{language}/README.md", language)


def test_tables_of_frames_are_those_of_the_contract():
    comments = [words(re.sub(r"^ *//", "", path.read_text(), flags=re.MULTILINE))
                for path in (ROOT / "proto" / "tenon" / "v1").glob("*.proto")]
    tables = blocks("README.md", "text")
    assert len(tables) == 4
    for table in tables:
        assert any(words(table) in comment for comment in comments), table


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    source = ROOT / "client" / page
    for target in re.findall(r"\]\(([^)]+)\)", source.read_text()):
        path, _, anchor = target.partition("#")
        assert (source.parent / path).exists(), target
        assert not anchor or anchor in anchors(source.parent / path), target


def test_limits_are_the_servers(server, stubs):
    stub = stubs.provider_pb2_grpc.ProviderServiceStub(server.channel)
    limits = stub.GetServerInfo(stubs.provider_pb2.GetServerInfoRequest(), timeout=60).limits
    text = (ROOT / "client" / "README.md").read_text()
    assert "under 4 MiB" in text and limits.max_message_bytes >= 4 << 20
    for told, limit, value in [("below 65536 bytes", limits.inline_limit_bytes, 65536),
                               ("1 MiB by default", limits.default_chunk_bytes, 1 << 20),
                               ("carries 128 calls", limits.max_streams_per_connection, 128)]:
        assert told in text and limit == value


@pytest.mark.parametrize("wrong", ['{"id": "tnc", "k": 2}', '{"id": 3}', '{"id": '])
def test_a_line_that_is_no_request_would_fail(shell, wrong):
    line = f"grpcurl -plaintext -d '{wrong}' {ADDRESS} tenon.v1.MeasurementService/ListMeasures"
    assert shell(line).returncode not in (0, 64 + 3)
