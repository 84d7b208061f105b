#!/usr/bin/env python3
"""Makes the seeds of the targets that take text or files: make_corpus.py CORPUS.

Small ones only: a fuzzer is fast on small inputs and makes large ones by itself. Those of frames
are written by write_seeds.
"""

import json
import pathlib
import struct
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
MOST_BYTES = 4096

EINSUMS = [
    "", ",", "->", "ij,jk->ik", "ij,jk", "ii", "ii->i", "a,b,c->abc", "ab,bc,cd,de->ae",
    " a b ,\tb\nc -> c a ", "zα,αΩ😀->z", "(1,1)", "abcd,dcba->", "ab-c", "a...,b", "->->", "ab\xff",
]


def plan(**changes):
    file = {
        "schema": "tenon-plan", "version": 1, "name": "seed",
        "network": {"inputs": [["a", "b"], ["b", "c"], ["c", "d"]], "output": ["a", "d"],
                    "size_dict": {"a": 2, "b": 3, "c": 4, "d": 5}},
        "path_ssa": [[0, 1], [3, 2]], "sliced": ["c"], "target": {"elements": 64},
        "costs": {"slices": 4},
        "provenance": {"objective": "weighted", "flops_weight": 1, "read_write_weight": 64,
                       "methods": ["greedy", "annealing"], "slicing_mode": "dynamic", "seed": 7,
                       "trials": 3, "seconds": 0.5, "stopped_by": "time",
                       "planner_version": "1.0"}}
    file.update(changes)
    return {key: value for key, value in file.items() if value is not None}


ARCTN = {
    "schema": "arctn-execution-plan", "schema_version": 2, "path_format": "ssa-v1",
    "network": {"inputs": [[0, 1], [1, 2]], "output": [0, 2],
                "size_dict": [[0, 2], [1, 3], [2, 4]]},
    "network_canon": "t:0,1;1,2|o:0,2|d:0=2,1=3,2=4", "ssa_path": [[0, 1]],
    "sliced": {"legs": [1]}, "target_size": 8, "metrics": {"log2_n_slices": 1.584962500721156},
    "planning": {"planner_objective": "total_flops", "seed": 3}}


def npy(descr, shape, data, fortran=False, version=1):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(header) + 1)
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + b"\n" + data


def seeds():
    """Yields (target, name, bytes)."""
    for number, text in enumerate(EINSUMS):
        yield "einsum", f"form_{number}", text.encode("latin-1" if "\xff" in text else "utf-8")
    cases = json.loads((TESTS / "cases" / "public.json").read_text())["cases"]
    for case in cases:
        inputs = case["input"].get("inputs") if case["area"] == "contraction" else None
        if not isinstance(inputs, list) or not all(isinstance(names, list) for names in inputs):
            continue
        lists = [*inputs, case["input"].get("output", [])]
        if all(isinstance(name, str) and len(name) == 1 for names in lists for name in names):
            text = ",".join("".join(names) for names in inputs) + "->" + "".join(lists[-1])
            yield "einsum", f"case_{case['id']}", text.encode()
    for path in sorted((TESTS / "data" / "networks").glob("*.json")):
        if path.stat().st_size <= MOST_BYTES and path.stem != "reference":
            yield "network", path.stem, path.read_bytes()
    tiny = {"inputs": [["a", 1], [1, "b"], []], "output": ["b"], "size_dict": {"a": 2, "1": 3, "b": 4},
            "path_linear": [[0, 1], [0, 1]], "sliced": ["1"], "dtype": "complex64", "seed": 1,
            "scales": [1, 0.5, 2]}
    yield "network", "tiny", json.dumps(tiny).encode()
    yield "network", "nested", b'{"a":' + b"[" * 40 + b"]" * 40 + b"}"
    yield "plan", "tenon", json.dumps(plan()).encode()
    yield "plan", "linear", json.dumps(
        plan(path_ssa=None, path_linear=[[0, 1], [1, 0]], sliced=[], costs={}, target=None)).encode()
    yield "plan", "arctn", json.dumps(ARCTN).encode()
    for name in ("three3.hd", "two2.ld", "tiny12.labels", "strlab60.ld"):
        yield "npy", name, (TESTS / "golden" / "inputs" / f"{name}.npy").read_bytes()
    yield "npy", "fortran", npy("<i2", (2, 3, 2), bytes(range(24)), fortran=True)
    yield "npy", "scalar", npy("<c8", (), bytes(8), version=2)
    yield "npy", "bools", npy("|b1", (3,), b"\x00\x01\x02", version=3)
    yield "npy", "empty", npy("<f8", (0, 1 << 62), b"")
    yield "npy", "big_endian", npy(">f4", (1,), bytes(4))


def main(corpus):
    for target, name, content in seeds():
        folder = pathlib.Path(corpus) / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1])
