"""A coordinator's operator service over the jobs of a `world`, and operators who dial it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from kernfed.pki.identity import Identity, admission, server_credentials
from kernfed.status import StatusInterceptor
from kernfed.v1 import operator_service_pb2_grpc
from kernfed.wire.channel import SERVER_OPTIONS
from kernfed.wire.operator_client import OperatorClient
from kernfed_server.services.operator import OperatorServicer
from kernfed_testing.commands import run_command
from kernfed_testing.identities import Identities, make_identities
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.worlds.job_world import World, world


@dataclass
class Service:
    """A coordinator's operator service over the jobs of `world`."""

    world: World
    identities: Identities
    operator: Path
    client: Path
    address: str
    server: grpc.aio.Server

    def dial(self, folder: Path | None = None, **settings: Any) -> OperatorClient:
        return OperatorClient(Identity.load(folder or self.operator), self.address, timeout_s=LIMIT_S, **settings)

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run `kernfed`, piped; returns exit status, stdout, stderr."""
        own = ("--identity", str(self.operator), "--coordinator", self.address)
        done = await run_command("kernfed", *arguments, *own, cwd=self.world.folder)
        return done.returncode, done.stdout, done.stderr


@contextlib.asynccontextmanager
async def serving(
    folder: Path, *clients: str, servicer: type[OperatorServicer] = OperatorServicer, **settings: Any
) -> AsyncIterator[Service]:
    pki = make_identities(folder / "ids")
    async with world(folder / "data", *clients, **settings) as w:
        admit = admission("hearts", lambda _: False)
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=[StatusInterceptor(admit)])
        operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(
            servicer(w.runs, pki.pki.authority.certificate), server
        )
        port = server.add_secure_port("localhost:0", server_credentials(pki.coordinator))
        await server.start()
        try:
            yield Service(w, pki, pki.operator, pki.client("a"), f"localhost:{port}", server)
        finally:
            w.runs.drain()
            await server.stop(1)
