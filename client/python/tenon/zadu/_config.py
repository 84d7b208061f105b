"""How to run: zadu's settings, and the providers that they mean."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from numbers import Integral
from typing import Any

from tenon._measure_header import check_rng
from tenon._sizes import parse_bytes
from tenon.errors import InvalidRequest

__all__ = ["ExecutionConfig", "provider_of"]

_NAME = re.compile(r"[a-z][a-z0-9_.:-]*")
_DEVICES = {"numpy": ("auto", "cpu"), "mlx": ("auto", "cpu", "gpu"),
            "torch": ("auto", "cpu", "mps", "cuda")}
_SINGLE_ONLY = {("mlx", "gpu"), ("torch", "mps")}


@dataclasses.dataclass(frozen=True)
class ExecutionConfig:
    """Settings of a `ZADU` runner.

    Attributes:
      backend: "auto" and "numpy" mean the server's CPU; "torch" its CPU or GPU, by `device`; "cuda"
        its first GPU; any other name the server's provider of that name.
      device: "auto", "cpu", or what the backend knows.
      dtype: element type of distances; torch needs one ("float32", "float64").
      memory_budget: largest planned peak, in bytes or as "4GiB".
      embedding_workers: projections in flight. 1: as `ZADU.iter_measure_many` tells; a list is
        measured with as many as the server chooses.
      pair_order_strategy: "auto", "memory" or "external".
      temporary_directory: a folder below the server's scratch root; needs `temporary_budget`.
      temporary_budget: largest planned size of temporary files, in bytes or as "4GiB".
      rng: "numpy": seeded measures draw the numbers that zadu draws; "counter": the server's own.
      threads: on the server's CPU; None: its choice.

    Raises:
      ValueError: as an InvalidRequest, for values that mean nothing.
      TypeError: for values of the wrong type.
    """

    backend: str = "auto"
    device: str = "auto"
    dtype: str | None = None
    memory_budget: int | str | None = None
    embedding_workers: int = 1
    pair_order_strategy: str = "auto"
    temporary_directory: str | None = None
    temporary_budget: int | str | None = None
    rng: str = "numpy"
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("backend", "device", "dtype", "pair_order_strategy", "temporary_directory"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} is a text, not {type(value).__name__}")
            if value is not None and name != "temporary_directory":
                object.__setattr__(self, name, value.lower())
        object.__setattr__(self, "embedding_workers",
                           _count(self.embedding_workers, "embedding_workers"))
        if self.threads is not None:
            object.__setattr__(self, "threads", _count(self.threads, "threads"))
        check_rng(self.rng)
        self._check_pair_order()
        self._check_backend()
        _budget(self.memory_budget, "memory_budget")

    def _check_pair_order(self) -> None:
        if self.pair_order_strategy not in ("auto", "memory", "external"):
            raise _bad("pair_order_strategy", "'auto', 'memory' or 'external'")
        files = _budget(self.temporary_budget, "temporary_budget") is not None
        if not files and self.temporary_directory is not None:
            raise _bad("temporary_directory", "nothing unless there is a temporary_budget")
        if not files and self.pair_order_strategy == "external":
            raise _bad("pair_order_strategy", "'external' only with a temporary_budget")

    def _check_backend(self) -> None:
        backend = self.resolved_backend
        devices = _DEVICES.get(backend)
        if devices is None:
            if not _NAME.fullmatch(backend):
                raise _bad("backend", "a name of letters, digits, '.', '_', ':' or '-'")
            if not self.device or self.dtype == "":
                raise _bad("device" if not self.device else "dtype", "not empty")
            return
        if self.device not in devices:
            raise _bad("device", f"for {backend} one of " + ", ".join(devices))
        if backend == "numpy":
            if self.dtype not in (None, "float64"):
                raise _bad("dtype", "for numpy 'float64'")
        elif self.dtype not in ("float32", "float64"):
            raise _bad("dtype", f"for {backend} 'float32' or 'float64'")
        if (backend, self.device) in _SINGLE_ONLY and self.dtype != "float32":
            raise _bad("dtype", f"for {backend} on {self.device} 'float32'")

    @property
    def memory_budget_bytes(self) -> int | None:
        """The budget in bytes."""
        return _budget(self.memory_budget, "memory_budget")

    @property
    def temporary_budget_bytes(self) -> int | None:
        """The budget of temporary files in bytes."""
        return _budget(self.temporary_budget, "temporary_budget")

    @property
    def resolved_backend(self) -> str:
        """The backend, with "auto" replaced."""
        return "numpy" if self.backend == "auto" else self.backend

    @property
    def resolved_device(self) -> str:
        """The device, with what the backend settles replaced."""
        if self.resolved_backend == "numpy":
            return "cpu"
        on_cpu = self.backend == "mlx" and self.device == "auto" and self.dtype == "float64"
        return "cpu" if on_cpu else self.device

    @property
    def resolved_dtype(self) -> str:
        """The element type of distances."""
        return self.dtype or "float64"

    def measure_options(self, provider: str) -> dict[str, Any]:
        """The options of `Client.measure` that mean the same."""
        return {"providers": provider, "allow_fallback": provider != "cpu",
                "dtype": self.resolved_dtype, "memory_budget": self.memory_budget_bytes,
                "temporary_budget": self.temporary_budget_bytes,
                "temporary_directory": self.temporary_directory,
                "pair_order": self.pair_order_strategy, "threads": self.threads}


def provider_of(config: ExecutionConfig, is_ready: Callable[[str], bool]) -> str:
    """The server's provider that a configuration means.

    Args:
      is_ready: whether the server's provider of this name has a device that works.

    Raises:
      ImportError: for the libraries of Apple's devices, which no server has.
    """
    backend = config.resolved_backend
    if backend in ("mlx", "mps") or (backend == "torch" and config.device == "mps"):
        raise ImportError("a Tenon server has no MLX and no MPS; choose backend='numpy' (its CPU), "
                          "'torch' with device='cpu' or 'cuda' (its GPU), or the name of one of "
                          "its providers")
    if backend == "numpy" or (backend == "torch" and config.device == "cpu"):
        return "cpu"
    if backend == "torch" and config.device == "auto":
        return "cuda:0" if is_ready("cuda:0") else "cpu"
    return "cuda:0" if backend in ("torch", "cuda") else backend


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is an integer, not {type(value).__name__}")
    if value < 1:
        raise _bad(name, "at least 1")
    return int(value)


def _budget(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (Integral, str)):
        raise TypeError(f"{name} is a number of bytes or a text, not {type(value).__name__}")
    size = parse_bytes(value if isinstance(value, str) else int(value), name)
    if size < 1:
        raise _bad(name, "at least one byte")
    return size


def _bad(name: str, needed: str) -> InvalidRequest:
    return InvalidRequest(f"{name} is {needed}", reason="BAD_PARAMETER", field=name)
