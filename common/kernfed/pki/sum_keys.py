"""Keys of secure sums under the signature of a site: made at the site, proven at every other site of the sum.

The coordinator carries them, and may hold the federation's CA. So a site may go by the fingerprints of others' keys,
which it compared by another way (`policy.secure_sum.peers`); the CA's signature alone tells it no more than that
the CA's holder says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from kernfed.errors import KernfedError, SecureSumError
from kernfed.pki import folder
from kernfed.pki.authority import MAX_PEM_BYTES, signed_by
from kernfed.pki.identity import Identity
from kernfed.pki.names import Role, principal_of

_PURPOSE = b"kernfed secure sum keys 1\0"
"""Ahead of what is signed, so that the signature is good for nothing else."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a site says of itself in a secure sum."""

    job: str
    """Id of the job."""
    sum_id: str
    """Of the sum within it."""
    client: str
    mask_key: bytes
    box_key: bytes

    @property
    def signed(self) -> bytes:
        """What is signed: each part behind its length."""
        parts = (self.job.encode(), self.sum_id.encode(), self.client.encode(), self.mask_key, self.box_key)
        return _PURPOSE + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def sign(introduction: Introduction, identity: Identity) -> bytes:
    """Sign a site's keys with the key of its certificate.

    Raises:
        IdentityError: The key cannot be read.
    """
    key = folder.parse_key(identity.key_pem, identity.folder / folder.KEY)
    return key.sign(introduction.signed, ec.ECDSA(hashes.SHA256()))


def check_signed(introduction: Introduction, signature: bytes, certificate_pem: bytes) -> x509.Certificate:
    """Check that the holder of a certificate in a client's name signed these keys as its own, whoever issued it.

    Args:
        introduction: As a peer says it.
        signature: Of the client.
        certificate_pem: Of the client.

    Raises:
        SecureSumError: Something does not hold; names the client.
    """
    name = introduction.client
    if len(certificate_pem) > MAX_PEM_BYTES:
        raise SecureSumError(f"the certificate of {name} in this secure sum has {len(certificate_pem)} bytes, too many")
    try:
        certificate = folder.parse_certificate(certificate_pem, f"what is said of {name}")
        principal = principal_of(certificate)
    except KernfedError as err:
        raise SecureSumError(f"the certificate of {name} in this secure sum is none: {err}") from None
    if (principal.role, principal.name) != (Role.CLIENT, name):
        raise SecureSumError(f"{name} is to take part in this secure sum by the certificate of {principal}")
    public_key = certificate.public_key()
    if not isinstance(public_key, ec.EllipticCurvePublicKey):
        raise SecureSumError(f"the certificate of {name} in this secure sum is for another kind of key than kernfed's")
    try:
        public_key.verify(signature, introduction.signed, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise SecureSumError(f"the keys of {name} for this secure sum are not signed by {name}") from None
    return certificate


def prove(
    introduction: Introduction,
    signature: bytes,
    certificate_pem: bytes,
    ca: x509.Certificate,
    federation: str,
    now: datetime,
) -> str:
    """Check that a client of the federation signed these keys as its own.

    Args:
        introduction: As the coordinator passed it on.
        signature: Of the client.
        certificate_pem: Of the client.
        ca: The federation's.
        federation: Its name.
        now: The time here.

    Returns:
        Fingerprint of the client's key, 64 hexadecimal digits.

    Raises:
        SecureSumError: Something does not hold; names the client.
    """
    name = introduction.client
    certificate = check_signed(introduction, signature, certificate_pem)
    if not signed_by(certificate, ca) or principal_of(certificate).federation != federation:
        raise SecureSumError(f"the certificate of {name} in this secure sum is not of this federation's CA")
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
        raise SecureSumError(
            f"the certificate of {name} in this secure sum does not hold now; renew it there, or set the clock here"
        )
    public_key = certificate.public_key()
    assert isinstance(public_key, ec.EllipticCurvePublicKey)  # noqa: S101  # `check_signed` looked
    return folder.key_sha256(public_key)
