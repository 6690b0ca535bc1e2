"""Our own identity and the caller's: identity folders, TLS credentials for grpc, the name in a certificate.

Every call on the federation and operator services is over mutual TLS. The name and the role come from the SPIFFE URI
in the peer's certificate and from nowhere else; no message carries "who I am".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import structlog
from cryptography import x509

from kernfed.errors import AuthError, CertificateError, IdentityError, KernfedError, PermissionDeniedError, RevokedError
from kernfed.pki import folder as files
from kernfed.pki.authority import CLOCK_SKEW, serial_of, signed_by, utc_now
from kernfed.pki.names import Principal, Role, principal_of
from kernfed.wording import moment

__all__ = [
    "Caller",
    "Identity",
    "Role",
    "admission",
    "caller",
    "caller_of_der",
    "channel_credentials",
    "enrolment_channel_credentials",
    "enrolment_server_credentials",
    "refuse_unfit",
    "require",
    "server_credentials",
]

log = structlog.get_logger(__name__)

WARN_FRACTION = 0.3
"""Of a certificate's life left: from here on we warn."""

ALARM_FRACTION = 0.1
"""Of a certificate's life left: from here on a person must act."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A loaded and checked identity folder."""

    folder: Path
    principal: Principal
    certificate: x509.Certificate
    certificate_pem: bytes
    key_pem: bytes
    ca_pem: bytes
    coordinator: str
    """`host:port` of the coordinator; empty for the coordinator itself."""
    enrolment: str
    """`host:port` of its enrolment port."""

    @classmethod
    def load(cls, folder: Path, *, now: Callable[[], datetime] = utc_now, check_dates: bool = True) -> Identity:
        """Read an identity folder and check that its parts fit together.

        Args:
            folder: With `cert.pem`, `key.pem`, `ca.pem` and `identity.json`.
            now: Clock.
            check_dates: Whether to refuse a certificate that is expired or not yet valid.

        Raises:
            IdentityError: A file is missing, unreadable, too openly readable, or does not fit the others.
            CertificateError: The CA did not sign the certificate, or its dates do not hold now.
        """
        about = files.read_about(folder)
        pair = files.read_pair(folder)
        ca_pem = files.read_bytes(folder / files.CA)
        ca = files.parse_certificate(ca_pem, folder / files.CA)
        if not signed_by(pair.certificate, ca):
            raise CertificateError(
                f"{folder / files.CERT} was not signed by {folder / files.CA}: the two come from different "
                f"federations; enrol again into an empty folder"
            )
        principal = principal_of(pair.certificate)
        if principal != about.principal:
            raise IdentityError(
                f"{folder / files.ABOUT} says {about.principal} of {about.federation}, the certificate beside it "
                f"{principal} of {principal.federation}: put back the files that belong together"
            )
        identity = cls(
            folder,
            principal,
            pair.certificate,
            pair.certificate_pem,
            pair.key_pem,
            ca_pem,
            about.coordinator,
            about.enrolment,
        )
        if check_dates:
            identity.check_dates(now())
        return identity

    @property
    def name(self) -> str:
        """Client's or operator's name; `coordinator` for the coordinator."""
        return self.principal.name

    @property
    def role(self) -> Role:
        """Role of this identity."""
        return self.principal.role

    @property
    def federation(self) -> str:
        """Name of the federation."""
        return self.principal.federation

    @property
    def serial(self) -> str:
        """Serial number of the certificate, hexadecimal."""
        return serial_of(self.certificate)

    @property
    def not_before(self) -> datetime:
        """When the certificate begins."""
        return self.certificate.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """When the certificate ends."""
        return self.certificate.not_valid_after_utc

    def life_left(self, now: datetime) -> float:
        """Fraction of the certificate's life that is left: 1 when new, 0 at its end and after."""
        life = self.not_after - self.not_before - CLOCK_SKEW
        return min(1.0, max(0.0, (self.not_after - now) / life)) if life.total_seconds() > 0 else 0.0

    def check_end(self, now: datetime) -> None:
        """Refuse a certificate behind its end; waiting cures one whose beginning is still to come.

        Raises:
            CertificateError: It is expired; says both dates.
        """
        if now >= self.not_after:
            raise CertificateError(
                f"the certificate of {self.principal} in {self.folder} expired on {moment(self.not_after)} (it is now "
                f"{moment(now)}; if that is wrong, set this machine's clock): {_new_certificate(self.principal)}"
            )

    def check_dates(self, now: datetime) -> None:
        """Refuse a certificate outside its dates.

        Raises:
            CertificateError: It is expired or not yet valid; says both dates.
        """
        self.check_end(now)
        if now < self.not_before:
            raise CertificateError(
                f"the certificate of {self.principal} in {self.folder} is not valid before {moment(self.not_before)} "
                f"(it is now {moment(now)}): check this machine's clock"
            )

    def warn_if_expiring(self, now: datetime) -> float:
        """Log a warning with less than 30 % of the certificate's life left, an error with less than 10 %.

        Returns:
            The fraction left.
        """
        left = self.life_left(now)
        if left < WARN_FRACTION:
            (log.error if left < ALARM_FRACTION else log.warning)(
                "certificate expires soon",
                principal=str(self.principal),
                not_after=moment(self.not_after),
                days_left=round((self.not_after - now).total_seconds() / 86400, 1),
                remedy="renewal is automatic while the coordinator can be reached; else run `kernfed-client renew` "
                "or `kernfed pki renew`",
            )
        return left


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, read from its certificate."""

    name: str
    role: Role
    federation: str
    serial: str
    certificate: x509.Certificate

    def __str__(self) -> str:
        """`client/cleveland`."""
        return str(Principal(self.federation, self.role, self.name))

    def check_end(self, now: datetime) -> None:
        """Refuse a caller whose certificate has ended since its handshake, which alone looked at that.

        Raises:
            CertificateError: It is expired; says when.
        """
        if now >= self.certificate.not_valid_after_utc:
            principal = Principal(self.federation, self.role, self.name)
            raise CertificateError(
                f"the certificate of {self} expired on {moment(self.certificate.not_valid_after_utc)} (it is now "
                f"{moment(now)} at the coordinator): dial again with the renewed one, or {_new_certificate(principal)}"
            )


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """Credentials of a client or operator for mutual TLS with the coordinator."""
    return grpc.ssl_channel_credentials(identity.ca_pem, identity.key_pem, identity.certificate_pem)


def enrolment_channel_credentials(ca_pem: bytes) -> grpc.ChannelCredentials:
    """Credentials for the enrolment port: checks the server against the CA and shows no certificate."""
    return grpc.ssl_channel_credentials(ca_pem)


def server_credentials(folder: Path) -> grpc.ServerCredentials:
    """Credentials of the coordinator's port: mutual TLS, with the certificate that lies on disk at each handshake.

    Raises:
        IdentityError: The folder cannot be used now. Later faults are logged, and the last good pair stays in use.
    """
    return _dynamic_credentials(folder, require_client=True)


def enrolment_server_credentials(folder: Path) -> grpc.ServerCredentials:
    """Credentials of the enrolment port: the server shows its chain down to the CA, clients show nothing."""
    return _dynamic_credentials(folder, require_client=False)


def caller(context: grpc.aio.ServicerContext[Any, Any]) -> Caller:
    """Read who calls from the peer's certificate.

    Raises:
        AuthError: The peer showed no certificate.
        CertificateError: The certificate carries no name of this system.
    """
    pems = tuple(context.auth_context().get("x509_pem_cert", ()))
    if len(pems) != 1:
        raise AuthError("this call needs a client certificate: dial the coordinator's port with an enrolled identity")
    return _caller_of(bytes(pems[0]))


def require(context: grpc.aio.ServicerContext[Any, Any], *roles: Role) -> Caller:
    """Read who calls and refuse other roles than those given.

    Raises:
        AuthError: The peer showed no certificate.
        PermissionDeniedError: Its role is another one.
    """
    who = caller(context)
    if who.role not in roles:
        wanted = " or ".join(roles)
        raise PermissionDeniedError(
            f"{who} may not make this call; it is for the role {wanted}: use the identity folder of one "
            f"(`--identity DIR`)"
        )
    return who


def admission(
    federation: str, is_revoked: Callable[[str], bool], *, now: Callable[[], datetime] = utc_now
) -> Callable[[grpc.aio.ServicerContext[Any, Any]], None]:
    """Make the check that comes before every call on a mutual-TLS port (see `kernfed.status.StatusInterceptor`).

    Args:
        federation: Only certificates of this federation are admitted.
        is_revoked: Whether a serial number was revoked; answers at once, from memory.
        now: Clock.

    Returns:
        A function that raises AuthError, CertificateError, PermissionDeniedError or RevokedError for a caller who must
        stay out. A connection outlives its handshake, so the certificate's end is looked at here too.
    """

    def admit(context: grpc.aio.ServicerContext[Any, Any]) -> None:
        refuse_unfit(caller(context), federation, is_revoked, now())

    return admit


def refuse_unfit(who: Caller, federation: str, is_revoked: Callable[[str], bool], now: datetime) -> None:
    """Refuse a caller of another federation, and one whose certificate was revoked or has ended.

    Raises:
        PermissionDeniedError: The federation is another one.
        RevokedError: The certificate was revoked.
        CertificateError: It is expired.
    """
    if who.federation != federation:
        raise PermissionDeniedError(f"{who} is of federation {who.federation!r}; this is {federation!r}")
    if is_revoked(who.serial):
        again = (
            "make a new request with `kernfed-client csr --operator`, into an empty folder"
            if who.role is Role.OPERATOR
            else "ask the operator for a new token and enrol again"
        )
        raise RevokedError(f"the certificate of {who} was revoked: {again}")
    who.check_end(now)


@functools.lru_cache(maxsize=1024)
def caller_of_der(der: bytes) -> Caller:
    """Read who calls from a certificate whose signature TLS has checked, as it comes from `ssl`.

    Raises:
        CertificateError: The certificate carries no name of this system.
    """
    return _caller_in(x509.load_der_x509_certificate(der))


@functools.lru_cache(maxsize=1024)
def _caller_of(pem: bytes) -> Caller:
    return _caller_in(x509.load_pem_x509_certificate(pem))


def _caller_in(certificate: x509.Certificate) -> Caller:
    principal = principal_of(certificate)
    return Caller(principal.name, principal.role, principal.federation, serial_of(certificate), certificate)


def _dynamic_credentials(folder: Path, *, require_client: bool) -> grpc.ServerCredentials:
    def configuration() -> grpc.ServerCertificateConfiguration:
        identity = Identity.load(folder, check_dates=False)
        chain = identity.certificate_pem + identity.ca_pem
        roots = identity.ca_pem if require_client else None
        return grpc.ssl_server_certificate_configuration([(identity.key_pem, chain)], roots)

    def stamp() -> tuple[tuple[int, int, int], ...]:
        stats = [(folder / name).stat() for name in (files.CERT, files.KEY, files.CA)]
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in stats)

    identity = Identity.load(folder)
    if identity.role is not Role.COORDINATOR:
        raise IdentityError(f"{folder} is the identity of {identity.principal}; the coordinator needs its own")
    loaded = stamp()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Called by grpc at each handshake, from its own threads; None keeps what is in use."""
        nonlocal loaded
        try:
            current = stamp()
            if current == loaded:
                return None
            fresh = configuration()
        except (OSError, KernfedError) as err:
            log.warning("renewed certificate not usable, the old one stays in use", folder=str(folder), error=str(err))
            return None
        loaded = current
        log.info("certificate reloaded", folder=str(folder))
        return fresh

    return grpc.dynamic_ssl_server_credentials(configuration(), fetch, require_client)  # type: ignore[arg-type]  # stubs omit None


def _new_certificate(principal: Principal) -> str:
    if principal.role is Role.CLIENT:
        return "ask the operator for a new token and enrol again into an empty folder"
    return f"on the coordinator's machine run `kernfed pki renew {principal}`"
