"""Runs peers in processes of their own; `zadu_peer.py` is what runs there."""

import json
import pathlib
import subprocess

from corpus import BenchError
from peers import environment

_WORKER = pathlib.Path(__file__).with_name("zadu_peer.py")
_ZADU_VERSION = "0.5.4"
_TIMEOUT_SECONDS = 3600


def _ask(python, threads, **job):
    if not pathlib.Path(python).exists():
        raise BenchError(f"no peers: {python} does not exist; run tests/bench/setup.sh")
    answer = subprocess.run([str(python), str(_WORKER)], input=json.dumps(job),
                            capture_output=True, text=True, env=environment(threads),
                            timeout=_TIMEOUT_SECONDS)
    if answer.returncode != 0:
        raise BenchError(f"peer {job}: exit code {answer.returncode}\n{answer.stderr.strip()}")
    return json.loads(answer.stdout.splitlines()[-1])


def require(python, threads):
    """Versions of the peers and their thread pools; BenchError when one is missing."""
    answer = _ask(python, threads, kind="versions")
    if "missing" in answer:
        raise BenchError(f"peer library {answer['missing']} is missing ({answer['error']}); "
                         "run tests/bench/setup.sh")
    if answer["versions"]["zadu"] != _ZADU_VERSION:
        raise BenchError(f"zadu is {answer['versions']['zadu']}, not {_ZADU_VERSION}; "
                         "run tests/bench/setup.sh")
    return answer


def run_case(options, peer, threads, case):
    """One case by one peer with so many BLAS and OpenMP threads."""
    return _ask(options.python, threads, kind="case", peer=peer, measures=case.measures,
                rows=case.rows, columns=case.columns, labels=case.labels, cap=options.cap,
                repeats=options.repeat)


def run_stream(options, threads, measures, count):
    """`count` projections of the digits; a sample is timed and scaled."""
    return _ask(options.python, threads, kind="stream", measures=measures, columns=64, count=count,
                sample=min(options.sample or count, count))
