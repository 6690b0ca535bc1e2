"""What the registry of a federation's CA tells: the federation, certificates, tokens, revocations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from kernfed.pki.names import Role


@dataclass(frozen=True, slots=True)
class FederationInfo:
    """The registry's facts about its federation."""

    federation: str
    coordinator: str
    """`host:port` that clients dial."""
    enrolment: str
    hosts: tuple[str, ...]
    """Names and addresses in the coordinator's certificate."""


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """One certificate that the CA issued."""

    serial: str
    role: Role
    name: str
    not_before: datetime
    not_after: datetime
    issued_at: datetime
    via: str
    """`init`, `token`, `csr` or `renewal`."""
    revoked_at: datetime | None
    revoked_why: str
    """The reason that the operator gave, or `renewed`; empty: none given, or not revoked."""

    def state(self, now: datetime) -> str:
        """`valid`, `expiring` (less than 30 % of its life left), `expired`, `revoked` or `not yet valid`."""
        if self.revoked_at:
            return "revoked"
        if now >= self.not_after:
            return "expired"
        if now < self.not_before:
            return "not yet valid"
        return "expiring" if (self.not_after - now) < 0.3 * (self.not_after - self.not_before) else "valid"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One enrolment token, without its secret."""

    id: int
    client: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None
    cancelled_at: datetime | None

    def state(self, now: datetime) -> str:
        """`open`, `used`, `expired` or `cancelled`."""
        if self.used_at:
            return "used"
        if self.cancelled_at:
            return "cancelled"
        return "expired" if now >= self.expires_at else "open"


@dataclass(frozen=True, slots=True)
class Revocation:
    """One certificate that no longer counts."""

    number: int
    """Grows by one; a poll asks for those after the last number seen."""
    serial: str
    role: Role
    name: str
    revoked_at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class OperatorCertificate:
    """What the registry knows of an operator's certificate.

    Attributes:
        serial: Hexadecimal.
        key_sha256: Fingerprint of its key; an operator keeps its key when it renews.
        live: It is neither expired nor revoked.
        revoked_at: When an operator revoked it; None: nobody did, though it may have ended by a renewal.
    """

    serial: str
    key_sha256: str
    live: bool
    revoked_at: datetime | None


def live(certificates: Iterable[IssuedCertificate], now: datetime) -> list[IssuedCertificate]:
    """Those that are neither revoked nor expired."""
    return [c for c in certificates if c.revoked_at is None and now < c.not_after]
