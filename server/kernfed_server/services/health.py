"""The standard gRPC health service (grpc.health.v1) on the coordinator's ports."""

from __future__ import annotations

from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kernfed.wire.health import SERVICES, STORE


class Health:
    """Whether the coordinator serves: not before both ports answer, nor from the moment that it drains."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()
        self._store_wrong = ""

    async def starting(self) -> None:
        """Say of every service that it does not serve yet; the library's own beginning is that it does."""
        await self._set(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def serving(self) -> None:
        """Say of every service that it serves."""
        await self._set(health_pb2.HealthCheckResponse.SERVING)
        await self.store(self._store_wrong)

    async def store(self, wrong: str) -> None:
        """Say whether what operators ask for can be read and written.

        Args:
            wrong: What is wrong with the store; empty: nothing.
        """
        self._store_wrong = wrong
        status = health_pb2.HealthCheckResponse.NOT_SERVING if wrong else health_pb2.HealthCheckResponse.SERVING
        await self._servicer.set(STORE, status)

    async def draining(self) -> None:
        """Say of every service that it does not serve any more; final."""
        await self._servicer.enter_graceful_shutdown()

    async def _set(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in SERVICES:
            await self._servicer.set(service, status)

    def add_to(self, server: grpc.aio.Server, *, with_watch: bool) -> None:
        """Serve on one more port.

        Args:
            server: Of that port.
            with_watch: Whether callers may hold a stream of changes; not where callers show no certificate.
        """
        servicer = self._servicer if with_watch else _CheckOnly(self._servicer)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)


class _CheckOnly(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # generated without types
    """Answers a question and ends the call; `Watch` stays unimplemented."""

    def __init__(self, servicer: Any) -> None:
        self._servicer = servicer

    async def Check(self, request: Any, context: Any) -> Any:
        """See grpc.health.v1.Health."""
        return await self._servicer.Check(request, context)

    async def Watch(self, _request: Any, context: Any) -> None:
        """Refuse: a caller without a certificate may not hold a stream."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "use Check on this port")
