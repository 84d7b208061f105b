"""The channel to a server, whoever started it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from tenon import _frames, _local, errors
from tenon._endpoint import Endpoint
from tenon._sharing import Sharing
from tenon.v1 import (admin_pb2_grpc, contraction_pb2_grpc, dataset_pb2_grpc, job_pb2_grpc,
                      measurement_pb2_grpc, provider_pb2, provider_pb2_grpc)

_Answer = TypeVar("_Answer")


class Connection:
    """Stubs on one channel. Thread-safe."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.local, self.address = endpoint.local, endpoint.address
        self._metadata = endpoint.metadata
        self.channel = endpoint.channel(grpc)
        self.contract = _frames.method(self.channel)
        self.contract_header_only = _frames.header_only(self.channel)
        self.contraction = contraction_pb2_grpc.ContractionServiceStub(self.channel)
        self.measurement = measurement_pb2_grpc.MeasurementServiceStub(self.channel)
        self.datasets = dataset_pb2_grpc.DatasetServiceStub(self.channel)
        self.jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self.provider = provider_pb2_grpc.ProviderServiceStub(self.channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(self.channel)
        self.sharing = Sharing(endpoint.shared_bytes) if endpoint.shared_bytes else None
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
        except ValueError:  # gRPC's word for a closed channel
            raise errors.Unavailable("the client is closed") from None

    def stream(self, method: Callable[..., Any], request: Any, timeout: float | None = None) -> Any:
        """The running call; errors come from its iteration: see `frames`."""
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except ValueError:  # gRPC's word for a closed channel
            raise errors.Unavailable("the client is closed") from None

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
        if self.sharing is not None:
            self.sharing.close()
        self._endpoint.close()


def frames(call: Any) -> Any:
    """The frames of a stream. A caller that leaves, by Ctrl-C too, cancels the call."""
    try:
        yield from call
    except grpc.RpcError as error:
        raise errors.from_rpc(error) from None
    finally:
        call.cancel()
