"""Both ports of a coordinator over real sockets, without jobs: who calls is all that it answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from kernfed.pki.identity import (
    Identity,
    Role,
    admission,
    channel_credentials,
    enrolment_channel_credentials,
    enrolment_server_credentials,
    require,
    server_credentials,
)
from kernfed.status import StatusInterceptor, error_from_rpc
from kernfed.v1 import enrolment_service_pb2 as pb
from kernfed.v1 import enrolment_service_pb2_grpc as rpc
from kernfed.wire.channel import CHANNEL_OPTIONS, SERVER_OPTIONS
from kernfed_server.services.enrolment import EnrolmentServicer
from kernfed_server.trust.revocations import RevocationWatch
from kernfed_testing.identities import Identities
from kernfed_testing.limits import LIMIT_S


class WhoAmI(grpc.GenericRpcHandler):
    """`/test/Who` says who calls; `/test/Operate` is for operators."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        roles = {"/test/Who": tuple(Role), "/test/Operate": (Role.OPERATOR,)}.get(details.method)
        if roles is None:
            return None

        async def answer(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            return str(require(context, *roles)).encode()

        return grpc.unary_unary_rpc_method_handler(answer)


@dataclass
class Coordinator:
    """Both ports of a coordinator, without jobs."""

    ids: Identities
    port: int
    enrolment_port: int
    watch: RevocationWatch

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    async def call(self, folder: Path, method: str = "/test/Who", address: str | None = None) -> str:
        identity = Identity.load(folder, check_dates=False)
        credentials = channel_credentials(identity)
        async with grpc.aio.secure_channel(address or self.address, credentials, options=CHANNEL_OPTIONS) as channel:
            who: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
            try:
                return (await who(b"", timeout=LIMIT_S)).decode()
            except grpc.aio.AioRpcError as err:
                raise error_from_rpc(err) from None


@contextlib.asynccontextmanager
async def serving(ids: Identities, folder: Path | None = None) -> AsyncIterator[Coordinator]:
    folder = folder or ids.coordinator
    watch = RevocationWatch(ids.pki.registry, interval_s=0.02)
    servicer = EnrolmentServicer(ids.pki)
    admit = admission("hearts", watch.is_revoked)
    servers = []
    ports = []
    for credentials, interceptor in (
        (server_credentials(folder), StatusInterceptor(admit)),
        (enrolment_server_credentials(folder), StatusInterceptor()),
    ):
        server = grpc.aio.server(interceptors=[interceptor], options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers((WhoAmI(),))
        rpc.add_EnrolmentServiceServicer_to_server(servicer, server)
        ports.append(server.add_secure_port("127.0.0.1:0", credentials))
        await server.start()
        servers.append(server)
    port, enrolment_port = ports
    ids.set_ports(port, enrolment_port)
    polling = asyncio.ensure_future(watch.run())
    try:
        yield Coordinator(ids, port, enrolment_port, watch)
    finally:
        polling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await polling
        for server in servers:
            await server.stop(None)


async def ask(coordinator: Coordinator, ids: Identities, request: pb.DiagnoseRequest) -> pb.DiagnoseResponse:
    credentials = enrolment_channel_credentials(ids.pki.authority.certificate_pem)
    async with grpc.aio.secure_channel(f"localhost:{coordinator.enrolment_port}", credentials) as channel:
        answer: pb.DiagnoseResponse = await rpc.EnrolmentServiceStub(channel).Diagnose(request, timeout=LIMIT_S)
        return answer
