"""Tenon's side: the command `tenon plan` on a server of its own for every call, so that no plan
comes out of a cache. What the command prints is read in `read_plan` alone.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import planner_peers
from corpus import BenchError
from cost import ssa_from_linear
from watch import Watch

_TOLD_TOLERANCE = 1e-3  # of log10, between the figure that the command prints and ours
_GRACE_SECONDS = 60


def read_plan(answer, count):
    """{path, sliced, log10_flops} of the command's JSON, where `count` is the number of inputs.

    The path is in `path_ssa` or `path`; `path_format` may say that it is "linear".
    """
    body = answer.get("plan") if isinstance(answer.get("plan"), dict) else answer
    path = body.get("path_ssa", body.get("path"))
    if path is None:
        raise BenchError(f"tenon plan printed no path, only {', '.join(sorted(body))}")
    if body.get("path_format", "ssa") == "linear":
        path = ssa_from_linear(path, count)
    sliced = next((body[key] for key in ("sliced", "sliced_indices") if key in body), [])
    totals = [body[key] for key in ("sliced_log10_flops_total", "log10_flops_total", "log10_flops")
              if body.get(key) is not None]
    return {"path": path, "sliced": sliced, "log10_flops": totals[0] if totals else None}


class Tenon:
    """Plans networks with the command. Use as a context manager.

    server_binary   None: the command needs no server (a stand-in)
    """

    def __init__(self, binary, server_binary, threads, seed):
        self.binary, self.server_binary = pathlib.Path(binary), server_binary
        self.threads, self.seed = threads, seed
        for file in filter(None, (self.binary, server_binary and pathlib.Path(server_binary))):
            if not file.exists():
                raise BenchError(f"Tenon is missing: {file} does not exist; build it")
        self._folders = contextlib.ExitStack()
        self._stubs = None

    def __enter__(self):
        self._root = pathlib.Path(self._folders.enter_context(tempfile.TemporaryDirectory()))
        if self.server_binary:
            sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
            import tenond  # needs grpc
            (self._root / "stubs").mkdir()
            self._tenond, self._stubs = tenond, tenond.generate_stubs(self._root / "stubs")
        return self

    def __exit__(self, *error):
        self._folders.close()

    def version(self):
        answer = subprocess.run([str(self.binary), "version"], capture_output=True, text=True)
        return answer.stdout.strip() if answer.returncode == 0 else None

    @contextlib.contextmanager
    def _server(self):
        """A fresh server: (arguments of the command, process ids)."""
        if not self.server_binary:
            yield [], []
            return
        with tempfile.TemporaryDirectory(dir=self._root) as folder:
            server = self._tenond.Tenond(self.server_binary, folder, f"--threads={self.threads}",
                                         env=planner_peers.environment(self.threads))
            try:
                server.wait_until_ready(self._stubs)
                yield [f"--server={server.address}"], [server.process.pid]
            finally:
                server.stop()

    def command(self, file, seconds, target, objective):
        command = [str(self.binary), "plan", str(file), "--max-time", f"{seconds:g}",
                   "--seed", str(self.seed), "--objective", objective, "--json"]
        return command + (["--target-size", str(target)] if target else [])

    def _call(self, command, limit):
        start = time.monotonic()
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=limit,
                                    env=dict(os.environ))
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{' '.join(command)}: still running after {limit:g} s") from error
        if answer.returncode != 0:
            raise BenchError(f"{' '.join(command)}: exit code {answer.returncode}\n"
                             f"{answer.stderr.strip()}")
        return json.loads(answer.stdout), time.monotonic() - start

    def run(self, network, seconds, target, objective, calls=1):
        """Plans a network `calls` times on one server; figures are the first call's, and the seconds
        of the others are in `repeated_seconds` (they find the plan in the cache)."""
        file = self._root / f"{network.name}.json"
        file.write_text(json.dumps(network.document()))
        command = self.command(file, seconds, target, objective)
        with self._server() as (arguments, pids):
            watch = Watch(pids)
            answer, used = self._call(command + arguments, 2 * seconds + _GRACE_SECONDS)
            foreign = watch.processors()
            repeated = [self._call(command + arguments, 2 * seconds + _GRACE_SECONDS)[1]
                        for _ in range(calls - 1)]
        plan = read_plan(answer, len(network.inputs))
        best = planner_peers.judge(network, target, objective, [plan])
        figures = {"best": best, "seconds": used, "overshoot_seconds": used - seconds,
                   "foreign_processors": foreign, "repeated_seconds": repeated,
                   "told": {key: value for key, value in answer.items()
                            if isinstance(value, (int, float, str))}}
        told = plan["log10_flops"]
        if best and told is not None and abs(told - best["log10_flops"]) > _TOLD_TOLERANCE:
            figures["differs"] = (f"tells log10 flops {told}, the path has {best['log10_flops']}")
        return figures
