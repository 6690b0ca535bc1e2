"""Certificates renewed before they end: the call over mutual TLS, and the coroutine that makes it in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path

import grpc.aio
import structlog

from kernfed.errors import ConfigError, KernfedError, UnavailableError
from kernfed.pki.authority import CLOCK_SKEW, key_pem, make_csr, utc_now
from kernfed.pki.enrolled import check_issued
from kernfed.pki.folder import next_key, replace_pair
from kernfed.pki.identity import Identity, channel_credentials
from kernfed.pki.tls_diagnosis import diagnose_failure
from kernfed.status import error_from_rpc
from kernfed.v1 import enrolment_service_pb2 as pb
from kernfed.v1 import enrolment_service_pb2_grpc as rpc
from kernfed.wire.proxy import channel_options
from kernfed.wording import moment

log = structlog.get_logger(__name__)

RENEW_FRACTION = 1 / 3
"""Of a certificate's life left: from here on it is renewed."""

_LONGEST_SLEEP_S = 3600.0
_SHORTEST_RETRY_S = 1.0
_UNREADABLE_RETRY_S = 60.0


async def renew(identity: Identity, *, address: str | None = None, timeout_s: float = 30.0) -> Identity:
    """Have the coordinator sign another certificate for our name and key, and put it in place on disk.

    The coordinator alone changes its key with it.

    Args:
        identity: Ours; its certificate must still hold.
        address: `host:port` of the coordinator; the identity's own where None.
        timeout_s: Longest wait for the answer.

    Returns:
        The renewed identity.

    Raises:
        RevokedError: Our certificate was revoked.
        CertificateError: The handshake failed for a reason that waiting does not cure, or the answer is not for us.
        UnavailableError: The coordinator cannot be reached.
    """
    address = address or identity.coordinator
    if not address:
        raise ConfigError(f"{identity.folder} names no coordinator: give its address with --address host:port")
    key = next_key(identity.role, identity.key_pem, identity.folder)
    request = pb.RenewRequest(csr_pem=make_csr(key, identity.name).decode())
    async with grpc.aio.secure_channel(
        address, channel_credentials(identity), options=channel_options(address)
    ) as channel:
        stub = rpc.EnrolmentServiceStub(channel)
        try:
            answer = await stub.Renew(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as err:
            error = error_from_rpc(err)
            if isinstance(error, UnavailableError):
                error = await asyncio.to_thread(diagnose_failure, address, identity)
            raise error from None
    pem = answer.certificate_pem.encode()
    check_issued(pem, key, identity.principal, identity.ca_pem)
    await asyncio.to_thread(replace_pair, identity.folder, certificate_pem=pem, key_pem=key_pem(key))
    return Identity.load(identity.folder, check_dates=False)


async def keep_renewed(
    folder: Path,
    renew_once: Callable[[Identity], Awaitable[object]] = renew,
    *,
    on_renewed: Callable[[Identity], None] = lambda identity: None,
    now: Callable[[], datetime] = utc_now,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Renew a folder's certificate at two thirds of its life, for ever; warn when that fails and the end comes near.

    Args:
        folder: Identity folder; read anew each time, so a renewal by hand counts.
        renew_once: Renews the identity on disk.
        on_renewed: Told the new identity.
        now: Clock.
        sleep: Waits that many seconds.
    """
    while True:
        try:
            identity = await asyncio.to_thread(Identity.load, folder, check_dates=False)
        except KernfedError as err:
            log.error("identity cannot be read; its certificate is not renewed", folder=str(folder), error=str(err))
            await sleep(_UNREADABLE_RETRY_S)
            continue
        due_in = seconds_until_due(identity, now())
        if due_in > 0:
            await sleep(min(due_in, _LONGEST_SLEEP_S))
            continue
        try:
            await renew_once(identity)
            fresh = await asyncio.to_thread(Identity.load, folder, check_dates=False)
        except KernfedError as err:
            left = identity.warn_if_expiring(now())
            wait = retry_after(identity, now())
            log.warning("certificate not renewed; trying again", error=str(err), life_left=f"{left:.0%}", wait_s=wait)
            await sleep(wait)
            continue
        log.info("certificate renewed", principal=str(fresh.principal), not_after=moment(fresh.not_after))
        on_renewed(fresh)
        if fresh.not_after <= identity.not_after:  # ever shorter lives would be renewed ever faster
            log.error(
                "the renewed certificate ends no later than the one before, for the federation's CA ends then: make a "
                "new federation before (`kernfed pki init`), and enrol all anew",
                not_after=moment(fresh.not_after),
            )
            await sleep(_LONGEST_SLEEP_S)


def seconds_until_due(identity: Identity, now: datetime) -> float:
    """Seconds until two thirds of the certificate's life are over; negative afterwards."""
    life: timedelta = identity.not_after - identity.not_before - CLOCK_SKEW
    return (identity.not_after - life * RENEW_FRACTION - now).total_seconds()


def retry_after(identity: Identity, now: datetime) -> float:
    """Seconds to the next try: a twentieth of what is left of the life, between a second and an hour."""
    left = (identity.not_after - now).total_seconds()
    return _LONGEST_SLEEP_S if left <= 0 else min(_LONGEST_SLEEP_S, max(_SHORTEST_RETRY_S, left / 20))
