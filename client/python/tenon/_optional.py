"""Libraries that are needed for one thing only."""

from __future__ import annotations

import importlib
from typing import Any


def load(name: str, purpose: str) -> Any:
    """The module; ImportError that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{purpose} needs {package}: pip install {package} ({error})",
                          name=package) from error
