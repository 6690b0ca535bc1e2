"""EnrolmentService: tokens into certificates, certificates into newer ones, and verdicts on refused certificates.

The same servicer serves both ports. `Renew` needs a client certificate, so it works on the mutual-TLS port alone;
`Enrol` and `Diagnose` need none. Both are limited per peer, for anybody can reach them.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network
from typing import Any
from urllib.parse import unquote

import grpc.aio
import structlog
from cryptography import x509

from kernfed.errors import BusyError, CertificateError, IdentityError, TokenError
from kernfed.pki.authority import MAX_PEM_BYTES, serial_of, signed_by
from kernfed.pki.federation import FederationPki
from kernfed.pki.folder import parse_certificate
from kernfed.pki.identity import Role, caller
from kernfed.pki.names import principal_of
from kernfed.v1 import enrolment_service_pb2 as pb
from kernfed.v1 import enrolment_service_pb2_grpc as rpc
from kernfed.wording import moment

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

_MAX_SECRET = 256
_AT_ONCE = 4
"""Enrolments that are looked at together: a flood of them keeps no thread from sessions and jobs."""


class PeerLimit:
    """A token bucket per peer address; the number of buckets is bounded, the longest unused go first."""

    def __init__(
        self, burst: int, per_minute: float, max_peers: int = 4096, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = float(burst)
        self._rate = per_minute / 60
        self._max_peers = max_peers
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, peer: str) -> None:
        """Refuse a peer whose bucket is empty.

        Raises:
            BusyError: Too many tries; says how long to wait.
        """
        level = self._level(peer)
        if level < 1:
            wait = (1 - level) / self._rate
            raise BusyError(f"too many failed tries from your address: wait {wait:.0f} s and try again")

    def spend(self, peer: str) -> None:
        """Take one from a peer's bucket."""
        self._buckets[peer] = (max(0.0, self._level(peer) - 1), self._clock())
        self._buckets.move_to_end(peer)
        while len(self._buckets) > self._max_peers:
            self._buckets.popitem(last=False)

    def _level(self, peer: str) -> float:
        level, at = self._buckets.get(peer, (self._burst, self._clock()))
        return min(self._burst, level + (self._clock() - at) * self._rate)


class EnrolmentServicer(rpc.EnrolmentServiceServicer):
    """Thin face of `FederationPki` on the wire."""

    def __init__(self, pki: FederationPki) -> None:
        self._pki = pki
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._wrong_tokens = PeerLimit(burst=5, per_minute=6)
        self._questions = PeerLimit(burst=30, per_minute=30)

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.EnrolResponse:
        """Trade a token for a certificate."""
        peer = peer_host(context)
        try:
            if len(request.secret) > _MAX_SECRET:
                raise TokenError(f"a token's secret has at most {_MAX_SECRET} characters: copy the token again")
            async with self._at_once:
                if not await asyncio.to_thread(self._pki.registry.knows_token, request.secret):
                    # Many sites may share one address: guesses are slowed down there, and no token is kept waiting.
                    self._wrong_tokens.check(peer)
                pem = await asyncio.to_thread(self._pki.enrol, request.secret, request.client, request.csr_pem.encode())
        except (TokenError, CertificateError) as err:
            self._wrong_tokens.spend(peer)
            log.warning("enrolment refused", client=request.client[:64], peer=peer, error=str(err))
            raise
        info = await asyncio.to_thread(self._pki.registry.info)
        log.info("client enrolled", client=request.client, peer=peer)
        return pb.EnrolResponse(
            certificate_pem=pem.decode(),
            ca_pem=self._pki.authority.certificate_pem.decode(),
            coordinator=info.coordinator,
        )

    async def Renew(self, request: pb.RenewRequest, context: Context) -> pb.RenewResponse:
        """Trade the caller's certificate for a newer one of the same name and role."""
        who = caller(context)
        pem = await asyncio.to_thread(self._pki.renew, who.certificate, request.csr_pem.encode())
        log.info("certificate renewed", principal=str(who), old_serial=who.serial)
        return pb.RenewResponse(certificate_pem=pem.decode())

    async def Diagnose(self, request: pb.DiagnoseRequest, context: Context) -> pb.DiagnoseResponse:
        """Say what is wrong with a certificate, and log it, for the handshake could not."""
        peer = peer_host(context)
        self._questions.check(peer)
        self._questions.spend(peer)
        verdict, message = await asyncio.to_thread(judge, self._pki, request.certificate_pem.encode(), request.role)
        if verdict != pb.VERDICT_VALID:
            log.warning("peer asks why it is refused", peer=peer, verdict=pb.Verdict.Name(verdict), why=message)
        answer = pb.DiagnoseResponse(verdict=verdict, message=message)
        answer.now.FromDatetime(self._pki.now())
        return answer


def judge(pki: FederationPki, pem: bytes, role: str) -> tuple[pb.Verdict.ValueType, str]:
    """Verdict on a certificate as this coordinator sees it now, and a text `what is wrong: remedy`.

    Raises:
        CertificateError: There is no certificate in `pem`.
    """
    if len(pem) > MAX_PEM_BYTES:
        raise CertificateError(f"the certificate has {len(pem)} bytes, more than {MAX_PEM_BYTES}")
    try:
        certificate = parse_certificate(pem, "the request")
    except IdentityError as err:
        raise CertificateError(str(err)) from None
    if not signed_by(certificate, pki.authority.certificate):
        return pb.VERDICT_UNKNOWN_ISSUER, (
            f"this federation's CA ({pki.federation}) did not sign the certificate: enrol with a token of this "
            f"federation, or dial the coordinator of your own"
        )
    return _judge_own(pki, certificate, role)


def _judge_own(pki: FederationPki, certificate: x509.Certificate, role: str) -> tuple[pb.Verdict.ValueType, str]:
    now = pki.now()
    try:
        principal = principal_of(certificate)
    except CertificateError as err:
        return pb.VERDICT_WRONG_ROLE, f"the certificate names nobody ({err}): enrol again with a new token"
    if pki.registry.is_revoked(serial_of(certificate)):
        return pb.VERDICT_REVOKED, (
            f"the certificate of {principal} was revoked by the operator: ask the operator for a new token and enrol "
            f"again into an empty folder"
        )
    if now >= certificate.not_valid_after_utc:
        return pb.VERDICT_EXPIRED, (
            f"the certificate of {principal} expired on {moment(certificate.not_valid_after_utc)} by the "
            f"coordinator's clock: ask the operator for a new token and enrol again into an empty folder"
        )
    if now < certificate.not_valid_before_utc:
        begins = certificate.not_valid_before_utc
        return pb.VERDICT_NOT_YET_VALID, (
            f"the certificate of {principal} is not valid before {moment(begins)}, and "
            f"the coordinator's clock says {moment(now)}: set the clocks, or wait"
        )
    if principal.role is Role.COORDINATOR or (role and principal.role != role):
        return pb.VERDICT_WRONG_ROLE, (
            f"the certificate is that of {principal}, and this needs the role {role or 'client or operator'}: use the "
            f"identity folder of one"
        )
    return pb.VERDICT_VALID, f"the certificate of {principal} is in order"


def peer_host(context: Context) -> str:
    """Address of a call's peer without its port; of IPv6 the network, for one machine has all addresses of its own."""
    host = unquote(str(context.peer()).rpartition(":")[0])
    try:
        at = IPv6Address(host.removeprefix("ipv6:").strip("[]").partition("%")[0])
    except ValueError:
        return host
    return f"ipv4:{at.ipv4_mapped}" if at.ipv4_mapped else str(IPv6Network((at, 64), strict=False))
