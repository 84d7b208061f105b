"""The programs in Go and Ruby compute what NumPy does, stream, and tell why a call is refused."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from conftest import ROOT, copy_of_the_repository, run_shell

LANGUAGES = ["go", "ruby"]
WIDTHS = [1, 2, 4, 6, 9]
REFUSED = 1  # position of the projection that holds a NaN
IN_FLIGHT = 2


@pytest.fixture(params=LANGUAGES)
def output(request, programs):
    program = programs[request.param]
    assert program.returncode == 0, program.stderr
    return program.stdout.splitlines()


def noise(seed, rows, columns):
    """The matrices that both programs make."""
    values = []
    for _ in range(rows * columns):
        seed = (seed * 1103515245 + 12345) % 2**31
        values.append(seed / 2**31)
    return np.array(values).reshape(rows, columns)


def distances(points):
    return np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2))


def ranks(points):
    """ranks[i, j]: which neighbour of i is j; 0 is i itself."""
    result = np.empty((len(points), len(points)), int)
    for i, row in enumerate(distances(points)):
        row[i] = -1
        result[i, np.argsort(row, kind="stable")] = np.arange(len(points))
    return result


def scores(dataset, projection, k=10):
    """Trustworthiness, continuity and stress by their definitions."""
    n = len(dataset)
    high, low = ranks(dataset), ranks(projection)
    false = (low <= k) & (high > k)
    missing = (high <= k) & (low > k)
    scale = 2 / (n * k * (2 * n - 3 * k - 1))
    o, e = distances(dataset), distances(projection)
    return {"trustworthiness": 1 - scale * (high[false] - k).sum(),
            "continuity": 1 - scale * (low[missing] - k).sum(),
            "stress": np.sqrt(((o - e) ** 2).sum() / (o ** 2).sum())}


@pytest.mark.parametrize("size", [8, 300])
def test_contractions_are_those_of_numpy(output, size):
    (line,) = [line for line in output if line.startswith(f"product {size} x {size}: ")]
    total, trace = map(float, re.fullmatch(r".*: sum (\S+), trace (\S+)", line).groups())
    product = noise(1, size, 200) @ noise(2, 200, size)
    assert total == pytest.approx(product.sum(), rel=1e-12)
    assert trace == pytest.approx(np.trace(product), rel=1e-12)


def test_scores_are_those_of_the_definitions(output):
    dataset = noise(3, 1000, 10)
    for index, width in enumerate(WIDTHS):
        (line,) = [line for line in output if line.startswith(f"first {width} columns: ")]
        words = line.split(": ")[1].split()
        if index == REFUSED:
            assert words == ["NOT_FINITE", "projection"]
            continue
        told = {name: float(value) for name, value in zip(words[::2], words[1::2])}
        assert told == pytest.approx(scores(dataset, dataset[:, :width]), rel=1e-9)
    assert f"{len(WIDTHS) - 1} scored, 1 refused" in output


def test_scores_are_read_while_projections_are_sent(output):
    sent = [output.index(f"sending first {width} columns") for width in WIDTHS]
    answered = [next(i for i, line in enumerate(output) if line.startswith(f"first {width} col"))
                for width in WIDTHS]
    assert sent == sorted(sent) and answered == sorted(answered)
    for later, earlier in zip(sent[IN_FLIGHT:], answered):
        assert earlier < later


def test_a_refused_call_tells_code_reason_field_and_figures(output):
    assert output[-1].startswith(
        "InvalidArgument SHAPE_MISMATCH header.einsum.operands[1].spec.shape[0]: ")
    figures = dict(re.findall(r"\[(\w+) = (\w+)\]", output[-1]))
    assert figures == {"operand": "1", "axis": "0", "index": "b", "actual_size": "4",
                       "expected_size": "3"}


def test_nothing_of_a_refused_call_is_uploaded(programs, server):
    """Neither program sends chunks before the header is accepted."""
    refused = [line for line in server.text().splitlines() if "reason=SHAPE_MISMATCH" in line]
    assert len(refused) >= len(programs)
    assert all("received_bytes=0 " in line for line in refused)


def test_request_ids_reach_the_servers_log(programs, server):
    ids = re.findall(r" request_id=(\S+)", server.text())
    assert len([name for name in ids if re.fullmatch(r"go-[0-9a-f]{32}", name)]) >= 4
    assert len([name for name in ids if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
                                                     name)]) >= 4


def program_of(language, repository):
    """Runs the sources in the current folder with the stubs that the page's block made."""
    if language == "ruby":
        return f"ruby -I{repository}/stubs/ruby client/ruby/example.rb"
    return (f"export GO111MODULE=off GOPATH={repository}/stubs/go:/usr/share/gocode; "
            "go build -o example ./client/go; ./example")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_stream_that_is_refused_ends_and_tells_why(language, programs, server, repository,
                                                     tmp_path):
    copy_of_the_repository(tmp_path)
    name, wanted = {"go": ("measure.go", "k := int32(10)"),
                    "ruby": ("measure.rb", "(k: 10)")}[language]
    source = tmp_path / "client" / language / name
    assert wanted in source.read_text()
    source.write_text(source.read_text().replace(wanted, wanted.replace("10", "500")))
    ended = run_shell(program_of(language, repository), tmp_path, TENON_SERVER=server.address)
    assert ended.returncode == 1
    assert ("InvalidArgument K_OUT_OF_RANGE header.specs[0].trustworthiness_continuity.k: "
            in ended.stderr), ended.stderr
    assert "product 300 x 300" in ended.stdout


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_server_that_is_not_there(language, programs, repository):
    ended = run_shell(program_of(language, repository), repository, TENON_SERVER="127.0.0.1:1")
    assert ended.returncode == 1
    assert re.search(r"^(\S+ \S+ )?Unavailable: ", ended.stderr, re.MULTILINE), ended.stderr


def test_both_print_the_same_digits(programs):
    go, ruby = [sorted(programs[language].stdout.splitlines()) for language in LANGUAGES]
    assert go == ruby


def test_go_sources_are_formatted_and_vetted(programs, repository):
    formatted = subprocess.run(["gofmt", "-l", str(ROOT / "client" / "go")], capture_output=True,
                               text=True, check=True)
    assert formatted.stdout == ""
    vetted = run_shell("export GO111MODULE=off GOPATH=$PWD/stubs/go:/usr/share/gocode; "
                       "go vet ./client/go", repository)
    assert vetted.returncode == 0, vetted.stderr


def test_ruby_sources_have_no_warnings():
    assert shutil.which("ruby")
    for source in (ROOT / "client" / "ruby").glob("*.rb"):
        checked = subprocess.run(["ruby", "-wc", str(source)], capture_output=True, text=True,
                                 check=True)
        assert (checked.stdout.strip(), checked.stderr) == ("Syntax OK", "")
