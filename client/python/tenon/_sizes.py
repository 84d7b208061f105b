"""Sizes in bytes."""

from __future__ import annotations

import re

import numpy as np

from tenon.errors import InvalidRequest

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_bytes(size: int | str, field: str = "memory_budget") -> int:
    """Bytes of 4294967296 or "4GiB"."""
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool):
        return int(size)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    if match is None or match[2].lower() not in _UNITS:
        raise InvalidRequest(f"'{size}' is no size; expected for example 4294967296 or '4GiB'",
                             field=field)
    return int(float(match[1]) * _UNITS[match[2].lower()])
