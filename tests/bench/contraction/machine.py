"""What the figures were measured on and with."""

import datetime
import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]


def _first(pattern, path):
    match = re.search(pattern, pathlib.Path(path).read_text(), re.MULTILINE)
    return match.group(1) if match else None


def _caches():
    caches = {}
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / f).read_text().strip() for f in ("level", "type", "size"))
        caches[f"L{level} {kind.lower()}"] = size
    return caches


def describe():
    """CPU, caches, memory and kernel; nothing that names the machine."""
    flags = set((_first(r"^flags\s*:\s*(.*)$", "/proc/cpuinfo") or "").split())
    kib = _first(r"^MemTotal:\s*(\d+) kB", "/proc/meminfo")
    return {
        "cpu": _first(r"^model name\s*:\s*(.*)$", "/proc/cpuinfo"),
        "cpu_family_model": [_first(rf"^{f}\s*:\s*(\d+)$", "/proc/cpuinfo")
                             for f in ("cpu family", "model")],
        "cores": len(os.sched_getaffinity(0)),
        "simd": sorted(flags & {"avx2", "fma", "avx512f", "avx512_bf16", "amx_tile"}),
        "caches": _caches(),
        "memory_bytes": int(kib) * 1024 if kib else None,
        "kernel": platform.release(),
        "os": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
    }


def _git(*arguments):
    answer = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return answer.stdout.strip() if answer.returncode == 0 else None


def commit():
    """The commit of the working tree, with "+" when files that are in git differ from it."""
    name = _git("rev-parse", "HEAD")
    return name and name + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def date():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
