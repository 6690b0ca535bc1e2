"""Operators whose signatures count no more, as an X.509 revocation list (RFC 5280) under the CA's signature.

Clients cannot read the CA's registry. The coordinator passes this list on, so that a client refuses what a revoked
operator signed, also where it was submitted before. A list is good for a week, and a new one comes each hour: a
coordinator that withholds newer ones shows within that week.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from kernfed.errors import CertificateError
from kernfed.pki.authority import Authority
from kernfed.pki.names import UNREADABLE
from kernfed.pki.records import OperatorCertificate

MAX_LIST_BYTES = 1 << 20
"""Some 20,000 certificates."""

VALIDITY = timedelta(days=7)
"""From the signature until a list proves no more that nobody else was revoked; whom it names stays revoked."""
RENEWED_EVERY = timedelta(hours=1)
"""Another list is signed, though nobody was revoked."""


@dataclass(frozen=True, slots=True)
class RevocationList:
    """A list as it was signed.

    Attributes:
        number: Grows with each revocation.
        issued_at: When it was signed.
        valid_until: Until when it proves that nobody else was revoked; at most `VALIDITY` later.
        revoked: Serial, hexadecimal, to the time of the revocation.
    """

    number: int
    issued_at: datetime
    valid_until: datetime
    revoked: Mapping[str, datetime]


def not_believed(certificates: Iterable[OperatorCertificate]) -> dict[str, datetime]:
    """Serials whose signatures count no more, each with the time since when.

    They are those that were revoked. Where a key has a revoked certificate and no live one, all its certificates are
    among them: whoever has the key could else sign by one that has expired or was renewed.
    """
    by_key: dict[str, list[OperatorCertificate]] = defaultdict(list)
    for certificate in certificates:
        by_key[certificate.key_sha256].append(certificate)
    found: dict[str, datetime] = {}
    for same_key in by_key.values():
        since = [c.revoked_at for c in same_key if c.revoked_at is not None]
        if not since:
            continue
        all_of_it = not any(c.live for c in same_key)
        found |= {c.serial: c.revoked_at or min(since) for c in same_key if c.revoked_at is not None or all_of_it}
    return found


def sign_list(authority: Authority, revoked: Mapping[str, datetime], number: int, now: datetime) -> bytes:
    """Sign a list, in DER.

    Args:
        authority: The federation's CA.
        revoked: Serials and times.
        number: Of the last revocation in the registry.
        now: Time of the signature.
    """
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now)
        .next_update(now + VALIDITY)
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for serial, when in sorted(revoked.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(int(serial, 16)).revocation_date(when)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(Encoding.DER)


def read_list(der: bytes, ca: x509.Certificate) -> RevocationList:
    """Read a list from a peer.

    Args:
        der: As `sign_list` made it.
        ca: The federation's certificate.

    Raises:
        CertificateError: It is too large, is none, or the CA did not sign it.
    """
    if len(der) > MAX_LIST_BYTES:
        raise CertificateError(f"the list of revoked operators has {len(der)} bytes; at most {MAX_LIST_BYTES} are read")
    key = ca.public_key()
    try:
        found = x509.load_der_x509_crl(der)
        if not isinstance(key, ec.EllipticCurvePublicKey) or not found.is_signature_valid(key):
            raise CertificateError("the list of revoked operators is not signed by this federation's CA")
        number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        revoked = {f"{entry.serial_number:x}": entry.revocation_date_utc for entry in found}
        issued_at = found.last_update_utc
        valid_until = found.next_update_utc or issued_at
        if valid_until - issued_at > VALIDITY:
            valid_until = issued_at + VALIDITY
        return RevocationList(number, issued_at, valid_until, revoked)
    except (*UNREADABLE, x509.ExtensionNotFound) as err:
        raise CertificateError(f"the list of revoked operators cannot be read: {err}") from None
