"""asyncio's channel to a server, whoever started it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from tenon import _frames, _local, errors
from tenon._endpoint import Endpoint
from tenon._sharing import Sharing
from tenon.v1 import (contraction_pb2_grpc, dataset_pb2_grpc, measurement_pb2_grpc, provider_pb2,
                      provider_pb2_grpc)


class Connection:
    """Stubs on one channel of the running event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.local, self.address = endpoint.local, endpoint.address
        self.channel = endpoint.channel(grpc.aio)
        self.contract = _frames.method(self.channel)
        self.contract_header_only = _frames.header_only(self.channel)
        self.contraction = contraction_pb2_grpc.ContractionServiceStub(self.channel)
        self.measurement = measurement_pb2_grpc.MeasurementServiceStub(self.channel)
        self.datasets = dataset_pb2_grpc.DatasetServiceStub(self.channel)
        self.provider = provider_pb2_grpc.ProviderServiceStub(self.channel)
        self.sharing = Sharing(endpoint.shared_bytes) if endpoint.shared_bytes else None
        self._info: provider_pb2.GetServerInfoResponse | None = None

    @classmethod
    async def open(cls, **options: Any) -> Connection:
        """Starts the private server, where there is one to start, and waits until it is ready."""
        connection = cls(await asyncio.to_thread(lambda: Endpoint(**options)))
        if connection.local is not None:
            try:
                for pause in _local.pauses(connection.local.check):
                    if await connection._is_ready():
                        break
                    await asyncio.sleep(pause)
            except BaseException:
                await connection.close()
                raise
        return connection

    async def _is_ready(self) -> bool:
        try:
            info = await self.provider.GetServerInfo(provider_pb2.GetServerInfoRequest(),
                                                     timeout=10)
        except grpc.RpcError:
            return False
        return info.state == provider_pb2.SERVER_STATE_READY

    async def info(self) -> provider_pb2.GetServerInfoResponse:
        """What the server is; asked once."""
        if self._info is None:
            self._info = await self.unary(self.provider.GetServerInfo,
                                          provider_pb2.GetServerInfoRequest())
        return self._info

    async def unary(self, method: Callable[..., Any], request: Any,
                    timeout: float | None = None) -> Any:
        try:
            return await method(request, timeout=timeout, metadata=self._endpoint.metadata)
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None

    def stream(self, method: Callable[..., Any], request: Any, timeout: float | None = None) -> Any:
        """The running call; errors come from its iteration: see `frames`."""
        try:
            return method(request, timeout=timeout, metadata=self._endpoint.metadata)
        except grpc.aio.UsageError:
            raise errors.Unavailable("the client is closed") from None

    async def close(self) -> None:
        await self.channel.close()
        if self.sharing is not None:
            self.sharing.close()
        await asyncio.to_thread(self._endpoint.close)


async def frames(call: Any) -> AsyncIterator[Any]:
    """The frames of a stream. A caller that leaves, by cancelling too, cancels the call."""
    try:
        async for frame in call:
            yield frame
    except grpc.RpcError as error:
        raise errors.from_rpc(error) from None
    finally:
        call.cancel()
