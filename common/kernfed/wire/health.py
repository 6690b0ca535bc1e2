"""The standard gRPC health service, as a probe in the same machine or container asks it.

Service names: the empty one stands for the whole coordinator, the others for its services.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kernfed.errors import UnavailableError
from kernfed.pki.identity import Identity, enrolment_channel_credentials
from kernfed.pki.tls_chain import server_names
from kernfed.status import error_from_rpc
from kernfed.wire.channel import CHANNEL_OPTIONS

STORE: Final = "kernfed.store"
"""Whether the coordinator's database and disk can be used: no reason to start it anew, but to send no calls to it."""
SERVICES: Final = (
    "",
    "kernfed.v1.FederationService",
    "kernfed.v1.OperatorService",
    "kernfed.v1.EnrolmentService",
    STORE,
)
"""Services for which a coordinator's health service answers."""


async def check_health(address: str, coordinator_folder: Path, *, service: str = "", timeout_s: float = 5.0) -> None:
    """Ask a coordinator on its enrolment port whether it serves; return if it does.

    Args:
        address: host:port of the enrolment port, which needs no client certificate. It may be a loopback address: the
            server's certificate is checked against the name that it is for.
        coordinator_folder: The coordinator's identity folder, for the CA and that name.
        service: One of `SERVICES`.
        timeout_s: Longest wait in seconds.

    Raises:
        IdentityError: The folder cannot be used.
        UnavailableError: Nobody answers in time, or the answer is that it does not serve now.
    """
    identity = Identity.load(coordinator_folder, check_dates=False)
    options = [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", server_names(identity.certificate)[0])]
    credentials = enrolment_channel_credentials(identity.ca_pem)
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_s)
        except grpc.aio.AioRpcError as err:
            raise error_from_rpc(err) from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        why = (
            "its database or disk cannot be used; its log says why"
            if service == STORE
            else "it is starting or stopping"
        )
        raise UnavailableError(f"the coordinator at {address} answers {status}: {why}")
