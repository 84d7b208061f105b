"""One measurement of a peer, in a process of its own. Runs in the peers' environment.

Reads a job as JSON on stdin and prints JSON lines on stdout: events as they happen, so that whoever
stops this process knows how far it came, and the outcome last. `peers.py` is the other end.
"""

import importlib
import json
import os
import pathlib
import re
import sys
import time

import numpy as np

import corpus
import timing
from load import ForeignLoad

GEMM_SIZES = {"float32": 4096, "float64": 3072, "complex64": 2560, "complex128": 2048}


def emit(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def status_bytes(field, pid="self"):
    """VmRSS or VmHWM of a process."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE).group(1)) * 1024


def reset_high_water(pid="self"):
    """Makes VmHWM start anew; False where the kernel does not allow it."""
    try:
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


class CotengraPeer:
    """cotengra's own executor, as tree.contract runs it, on NumPy or torch."""

    def __init__(self, network, arrays, library, threads):
        import cotengra
        self.backend = library
        # Its executor wants one character an index.
        symbols = {ix: cotengra.get_symbol(i) for i, ix in enumerate(network.size_dict)}
        self.sizes = {symbols[ix]: size for ix, size in network.size_dict.items()}
        self.inputs = [tuple(symbols[ix] for ix in indices) for indices in network.inputs]
        self.output = tuple(symbols[ix] for ix in network.output)
        self.path = [tuple(pair) for pair in network.path_ssa]
        self.tree = cotengra.ContractionTree.from_path(self.inputs, self.output, self.sizes,
                                                       ssa_path=self.path)
        for index in network.sliced:
            self.tree.remove_ind_(symbols[index])
        if library == "torch":
            import torch
            torch.set_num_threads(threads)
            arrays = [torch.from_numpy(array) for array in arrays]
        self.arrays = arrays

    def slice(self, i):
        return self.tree.contract_slice(self.arrays, i, backend=self.backend)

    def whole(self):
        return self.tree.contract(self.arrays, backend=self.backend)


class OptEinsumPeer(CotengraPeer):
    """opt_einsum along the same path. It knows no slices: cotengra cuts and gathers them."""

    def __init__(self, network, arrays, library, threads):
        super().__init__(network, arrays, library, threads)
        import opt_einsum

        def kept(indices):
            return [ix for ix in indices if ix not in self.tree.sliced_inds]

        terms = ["".join(kept(indices)) for indices in (*self.inputs, self.output)]
        equation = ",".join(terms[:-1]) + "->" + terms[-1]
        shapes = [tuple(self.sizes[ix] for ix in kept(indices)) for indices in self.inputs]
        path = opt_einsum.paths.ssa_to_linear(self.path)
        # Parsed once, outside the time.
        self.expression = opt_einsum.contract_expression(equation, *shapes, optimize=path)

    def slice(self, i):
        return self.expression(*self.tree.slice_arrays(self.arrays, i), backend=self.backend)

    def whole(self):
        if not self.tree.sliced_inds:
            return self.slice(0)
        slices = (self.slice(i) for i in range(self.tree.multiplicity))
        return self.tree.gather_slices(slices, backend=self.backend)


def seconds_of(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def time_contraction(peer, nslices, cap, repeats):
    """Times a peer within about `cap` seconds; emits `cold`, `warm`, `timed`. Returns a whole
    result, or None when some slices were left out."""
    begin = time.perf_counter()
    emit("begin")
    cold, result = seconds_of(lambda: peer.slice(0))
    emit("cold", seconds=cold)
    if cold > timing.LONG_SLICE_SECONDS:
        return result if nslices == 1 else None
    warm, result = seconds_of(lambda: peer.slice(nslices - 1))
    emit("warm", seconds=warm)
    schedule = timing.plan(warm, nslices, cap - (time.perf_counter() - begin), repeats)
    if schedule.slices == 1 < nslices:
        return None
    if schedule.slices == nslices:
        call = peer.whole
    else:
        def call():
            for i in range(schedule.slices):
                peer.slice(i)
    for _ in range(schedule.repeats):
        seconds, result = seconds_of(call)
        emit("timed", seconds=seconds, slices=schedule.slices)
    return result if schedule.slices == nslices else None


def run_contraction(job):
    network = corpus.read_network(job["network"])
    arrays = corpus.make_operands(network, job["dtype"])
    kind = OptEinsumPeer if job["library"] == "opt_einsum" else CotengraPeer
    peer = kind(network, arrays, job["arrays"], job["threads"])
    reset, inputs = reset_high_water(), status_bytes("VmRSS")
    load = ForeignLoad([os.getpid()])
    result = time_contraction(peer, network.nslices, job["cap"], job["repeats"])
    emit("load", foreign_processors=load.processors())
    emit("memory", inputs_bytes=inputs, peak_bytes=status_bytes("VmHWM"), high_water_reset=reset)
    if result is not None and job["reference"] is not None:
        difference, tolerance = corpus.compare(job["reference"], np.asarray(result))
        emit("check", difference=difference, tolerance=tolerance)
    emit("done")


def run_gemm(job):
    """Best rate of a large matrix product in real GFLOP/s, for each element type asked for."""
    rates = {}
    load = ForeignLoad([os.getpid()])
    for dtype in job["dtypes"]:
        n = GEMM_SIZES[dtype]
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal((n, n)).astype(dtype) for _ in range(2))
        if job["arrays"] == "torch":
            import torch
            torch.set_num_threads(job["threads"])
            a, b = torch.from_numpy(a), torch.from_numpy(b)
        flops = (8 if dtype.startswith("complex") else 2) * float(n)**3
        rates[dtype] = flops / min(seconds_of(lambda: a @ b)[0] for _ in range(6)) / 1e9
    emit("gemm", gflops=rates, load={"foreign_processors": load.processors()})


def run_versions(job):
    """Imports every library asked for and tells what it is; emits `missing` where one is not."""
    versions = {"python": sys.version.split()[0]}
    for name in job["modules"]:
        try:
            versions[name] = importlib.import_module(name).__version__
        except ImportError as error:
            emit("missing", module=name, error=str(error))
            return
    import threadpoolctl
    pools = [{key: value for key, value in pool.items() if key != "filepath"}
             for pool in threadpoolctl.threadpool_info()]
    fields = {"versions": versions, "thread_pools": pools}
    if "torch" in versions:
        import torch
        torch.set_num_threads(job["threads"])
        fields["torch_blas"] = re.findall(r"(?m)^  - (.*(?:Library|MKL-DNN|capability).*)$",
                                          torch.__config__.show())
        fields["torch_threads"] = torch.get_num_threads()
    emit("versions", **fields)


if __name__ == "__main__":
    JOB = json.load(sys.stdin)
    {"contraction": run_contraction, "gemm": run_gemm, "versions": run_versions}[JOB["kind"]](JOB)
