"""The channel to a server, whoever started it."""

from __future__ import annotations

import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc

from tenon import _local, errors
from tenon.v1 import (admin_pb2_grpc, contraction_pb2_grpc, dataset_pb2_grpc, job_pb2_grpc,
                      measurement_pb2_grpc, provider_pb2, provider_pb2_grpc)

_OPTIONS = [("grpc.max_receive_message_length", 8 << 20),
            ("grpc.primary_user_agent", "tenon-python"),
            # A server that comes back is found soon.
            ("grpc.max_reconnect_backoff_ms", 5000)]
_Answer = TypeVar("_Answer")


class Connection:
    """Stubs on one channel. Thread-safe."""

    def __init__(self, address: str | None = None, *, tenond: str | os.PathLike[str] | None = None,
                 flags: Sequence[str] = (), token: str | None = None, tls: bool = False,
                 tls_ca: str | os.PathLike[str] | None = None,
                 tls_cert: str | os.PathLike[str] | None = None,
                 tls_key: str | os.PathLike[str] | None = None,
                 tls_server_name: str | None = None) -> None:
        address = address or os.environ.get("TENON_SERVER") or None
        self.local = _local.LocalServer(tenond, flags) if address is None else None
        self.address = self.local.address if self.local is not None else address
        encrypted = tls or any(name is not None for name in (tls_ca, tls_cert, tls_server_name))
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        if token and not encrypted and not _is_loopback(self.address):
            raise errors.InvalidRequest("a token is not sent to another machine without tls",
                                        field="token")
        options = list(_OPTIONS)
        if tls_server_name is not None:
            options.append(("grpc.ssl_target_name_override", tls_server_name))
        if encrypted:
            read = lambda path: pathlib.Path(path).read_bytes() if path is not None else None
            self.channel = grpc.secure_channel(
                self.address, grpc.ssl_channel_credentials(read(tls_ca), read(tls_key),
                                                           read(tls_cert)), options)
        else:
            self.channel = grpc.insecure_channel(self.address, options)
        self.contraction = contraction_pb2_grpc.ContractionServiceStub(self.channel)
        self.measurement = measurement_pb2_grpc.MeasurementServiceStub(self.channel)
        self.datasets = dataset_pb2_grpc.DatasetServiceStub(self.channel)
        self.jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self.provider = provider_pb2_grpc.ProviderServiceStub(self.channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(self.channel)
        self._info: provider_pb2.GetServerInfoResponse | None = None
        self._lock = threading.Lock()
        if self.local is not None:
            try:
                _local.wait_until(self._is_ready, self.local.check)
            except BaseException:
                self.close()
                raise

    def _is_ready(self) -> bool:
        try:
            info = self.provider.GetServerInfo(provider_pb2.GetServerInfoRequest(), timeout=10)
        except grpc.RpcError:
            return False
        return info.state == provider_pb2.SERVER_STATE_READY

    def info(self) -> provider_pb2.GetServerInfoResponse:
        """What the server is; asked once."""
        with self._lock:
            if self._info is None:
                self._info = self.unary(self.provider.GetServerInfo,
                                        provider_pb2.GetServerInfoRequest())
            return self._info

    def unary(self, method: Callable[..., _Answer], request: Any,
              timeout: float | None = None) -> _Answer:
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None

    def stream(self, method: Callable[..., Any], request: Any, timeout: float | None = None) -> Any:
        """The running call; errors come from its iteration: see `frames`."""
        return method(request, timeout=timeout, metadata=self._metadata)

    def upload(self, method: Any, requests: Iterator[Any], timeout: float | None = None) -> Any:
        """The one answer to a stream of requests. Leaving it by an exception cancels the call."""
        call = method.future(requests, timeout=timeout, metadata=self._metadata)
        try:
            return call.result()
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None
        finally:
            call.cancel()

    def close(self) -> None:
        self.channel.close()
        if self.local is not None:
            self.local.close()


def frames(call: Any) -> Any:
    """The frames of a stream. A caller that leaves, by Ctrl-C too, cancels the call."""
    try:
        yield from call
    except grpc.RpcError as error:
        raise errors.from_rpc(error) from None
    finally:
        call.cancel()


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return address.startswith("unix:") or host in ("localhost", "::1") or host.startswith("127.")
