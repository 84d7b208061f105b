"""Where a server is and how it is called, whoever started it: what every kind of channel needs."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.experimental

from tenon import _local, errors
from tenon._sizes import parse_bytes

_OPTIONS = [("grpc.max_receive_message_length", 8 << 20),
            ("grpc.primary_user_agent", "tenon-python"),
            # A server that comes back is found soon.
            ("grpc.max_reconnect_backoff_ms", 5000)]
# Calls of one request are read by the thread that waits for them, not by a thread of gRPC's: half
# of the time of a small call. asyncio's channels have no threads.
_SYNCHRONOUS_OPTIONS = [(grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)]
_POOL_BYTES = 1 << 30


class Endpoint:
    """Address, credentials and metadata; starts the private server where there is no address."""

    def __init__(self, address: str | None = None, *, tenond: str | os.PathLike[str] | None = None,
                 flags: Sequence[str] = (), token: str | None = None, tls: bool = False,
                 tls_ca: str | os.PathLike[str] | None = None,
                 tls_cert: str | os.PathLike[str] | None = None,
                 tls_key: str | os.PathLike[str] | None = None,
                 tls_server_name: str | None = None,
                 shared_memory: int | str | bool | None = None) -> None:
        address = address or os.environ.get("TENON_SERVER") or None
        # The pool is the connection's.
        self.shared_bytes = _pool_bytes(shared_memory)
        self.local = (_local.LocalServer(tenond, flags, shares_memory=self.shared_bytes > 0)
                      if address is None else None)
        self.address = self.local.address if self.local is not None else address
        encrypted = tls or any(name is not None for name in (tls_ca, tls_cert, tls_server_name))
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        if token and not encrypted and not _is_loopback(self.address):
            raise errors.InvalidRequest("a token is not sent to another machine without tls",
                                        field="token")
        self.options: list[tuple[str, Any]] = list(_OPTIONS)
        if tls_server_name is not None:
            self.options.append(("grpc.ssl_target_name_override", tls_server_name))
        self.credentials = (grpc.ssl_channel_credentials(_read(tls_ca), _read(tls_key),
                                                         _read(tls_cert)) if encrypted else None)

    def channel(self, library: Any) -> Any:
        """A channel of `grpc` or of `grpc.aio`."""
        options = self.options + (_SYNCHRONOUS_OPTIONS if library is grpc else [])
        if self.credentials is not None:
            return library.secure_channel(self.address, self.credentials, options)
        return library.insecure_channel(self.address, options)

    def close(self) -> None:
        if self.local is not None:
            self.local.close()


def _pool_bytes(size: int | str | bool | None) -> int:
    if size is None or size is False:
        return 0
    return _POOL_BYTES if size is True else parse_bytes(size, "shared_memory")


def _read(path: str | os.PathLike[str] | None) -> bytes | None:
    return pathlib.Path(path).read_bytes() if path is not None else None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return address.startswith("unix:") or host in ("localhost", "::1") or host.startswith("127.")
