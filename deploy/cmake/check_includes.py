#!/usr/bin/env python3
"""Checks that every #include respects TENON_ROOM_DEPENDENCIES (TenonTargets.cmake).

A room is a folder of the source tree. The table says which rooms a room may use; nothing in backends/
may use the wire contract, the server or the client; the command uses the client by its public headers;
and rooms never use each other in a circle.
Prints one "file:line: message" per violation and exits with 1 if there is any, with 2 if the table
cannot be read.
"""

import argparse
import os
import re
import sys
from pathlib import Path

TABLE = Path("deploy/cmake/TenonTargets.cmake")
SOURCE_FOLDERS = ("backends", "server", "client")
SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
# Headers that come with gRPC and Protobuf or are generated from proto/.
WIRE = re.compile(r"^(proto/|tenon/v1/|google/(rpc|protobuf)/|grpc)")
FORBIDDEN_IN_BACKENDS = {"proto", "server", "client"}
# The command is a user of the client library like any other: of client/ it sees what is installed.
TOOL = "client/cpp/tool/"


def read_table(path):
    """Returns {room: set of rooms it may use} and {room: line number}."""
    text = path.read_text(encoding="utf-8")
    block = re.search(r"set\(TENON_ROOM_DEPENDENCIES\s(.*?)\)", text, re.DOTALL)
    if block is None:
        raise ValueError(f"{path}: TENON_ROOM_DEPENDENCIES not found")
    allowed, lines = {}, {}
    for entry in re.finditer(r'"(\w+):([\w,]*)"', block.group(1)):
        room, others = entry.groups()
        allowed[room] = {other for other in others.split(",") if other}
        lines[room] = text.count("\n", 0, block.start(1) + entry.start()) + 1
    if not allowed:
        raise ValueError(f"{path}: TENON_ROOM_DEPENDENCIES is empty")
    return allowed, lines


def room_of(path):
    """The room of a path relative to the root ('/' between its parts), or None."""
    if path in ("backends/plugin/abi.h", "backends/plugin/calibration.h"):
        return "plugin_abi"
    parts = path.split("/")
    if parts[0] == "backends" and len(parts) > 2:
        return parts[1]
    if parts[0] in ("server", "client") and len(parts) > 1:
        return parts[0]
    return "proto" if WIRE.match(path) else None


def included_path(root, source, name, quoted):
    """Where an include leads, relative to the root; names of other libraries stay as they are."""
    if quoted and (source.parent / name).is_file():
        return Path(os.path.relpath(source.parent / name, root)).as_posix()
    return Path(os.path.normpath(name)).as_posix()


def includes(root):
    """Yields (file relative to root, line number, included path relative to root)."""
    for folder in SOURCE_FOLDERS:
        for source in sorted((root / folder).rglob("*")):
            if source.suffix not in SUFFIXES or not source.is_file():
                continue
            text = source.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), start=1):
                match = INCLUDE.match(line)
                if match:
                    name = match.group(1) or match.group(2)
                    target = included_path(root, source, name, match.group(1) is not None)
                    yield source.relative_to(root).as_posix(), number, target


def find_cycle(graph):
    """A list of rooms that use each other in a circle (the first one repeated last), or None."""
    done, trail = set(), []

    def visit(room):
        if room in trail:
            return trail[trail.index(room):] + [room]
        if room in done:
            return None
        trail.append(room)
        for other in sorted(graph.get(room, ())):
            cycle = visit(other)
            if cycle:
                return cycle
        trail.pop()
        done.add(room)
        return None

    for room in sorted(graph):
        cycle = visit(room)
        if cycle:
            return cycle
    return None


def check(root):
    """Returns the list of violations in the tree under `root`."""
    allowed, lines = read_table(root / TABLE)
    violations = []
    used = {}  # room -> {other room: "file:line" of the first include}
    for file, number, target in includes(root):
        where = f"{file}:{number}"
        room, other = room_of(file), room_of(target)
        if room is not None and room not in allowed:
            violations.append(f"{where}: room '{room}' is not in the table of {TABLE}")
            continue
        if target.startswith("tests/"):
            violations.append(f"{where}: '{target}' belongs to the tests")
        if file.startswith(TOOL) and (target.startswith("grpc") or target.startswith("client/")
                                      and not target.startswith(TOOL)):
            violations.append(f"{where}: the command must not use '{target}', but tenon/*.h alone")
        if room is None or other is None or other == room:
            continue
        used.setdefault(room, {}).setdefault(other, where)
        if file.startswith("backends/") and other in FORBIDDEN_IN_BACKENDS:
            violations.append(f"{where}: backends/ must not use {other} ('{target}')")
        elif other not in allowed[room]:
            violations.append(f"{where}: room '{room}' may not use '{other}' ('{target}')")
    cycle = find_cycle(allowed)
    if cycle:
        violations.append(f"{TABLE}:{lines[cycle[0]]}: the table has a circle: {' -> '.join(cycle)}")
    cycle = find_cycle(used)
    if cycle:
        steps = [f"{a} -> {b} ({used[a][b]})" for a, b in zip(cycle, cycle[1:])]
        violations.append(f"{used[cycle[0]][cycle[1]]}: rooms include each other: {', '.join(steps)}")
    return violations


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2],
                        help="root of the source tree (default: the one this script lies in)")
    root = parser.parse_args().root.resolve()
    try:
        violations = check(root)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
