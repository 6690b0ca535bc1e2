"""Identity folders: `cert.pem`, `key.pem` (0600), `ca.pem`, `identity.json`, in a folder of mode 0700.

A renewed pair is put in place by two renames. A reader between them, or after a crash between them, finds the new key
beside the old certificate. It takes the certificate that waits in `cert.pem.next`, so the pair always fits.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kernfed import files
from kernfed.errors import ConfigError, IdentityError
from kernfed.pki.names import UNREADABLE, Principal, Role, check_name

CERT = "cert.pem"
KEY = "key.pem"
CA = "ca.pem"
ABOUT = "identity.json"
_NEXT = ".next"
_NO_IDENTITY = (
    "give the folder of an identity with --identity. A client's is made by `kernfed-client enrol --token-file FILE "
    "--identity DIR`, the first operator's by `kernfed pki init`, that of a further operator by `kernfed-client csr "
    "--operator`"
)


@dataclass(frozen=True, slots=True)
class About:
    """Content of `identity.json`; the certificate decides, this only saves typing."""

    federation: str
    role: Role
    name: str
    coordinator: str = ""
    """`host:port` of the coordinator; empty in the coordinator's own folder."""
    enrolment: str = ""
    """`host:port` of its enrolment port."""

    @property
    def principal(self) -> Principal:
        """Whom the folder is for."""
        return Principal(self.federation, self.role, self.name)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and the certificate that fits it, both in PEM and parsed."""

    certificate: x509.Certificate
    certificate_pem: bytes
    key_pem: bytes


def make_folder(folder: Path) -> None:
    """Create a folder of mode 0700, or tighten one that exists."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file of an identity or PKI folder; for its owner alone, unless it is told otherwise."""
    files.replace(path, content, durable=True, mode=mode)


def write_identity(folder: Path, about: About, *, certificate_pem: bytes, key_pem: bytes, ca_pem: bytes) -> None:
    """Write a whole identity folder; the certificate comes last, so a folder with one is complete."""
    make_folder(folder)
    write_file(folder / ABOUT, (json.dumps(asdict(about), indent=2) + "\n").encode(), 0o644)
    write_file(folder / CA, ca_pem, 0o644)
    replace_pair(folder, certificate_pem=certificate_pem, key_pem=key_pem)


def replace_pair(folder: Path, *, certificate_pem: bytes, key_pem: bytes) -> None:
    """Put a new key and certificate in place of the old, as one step for every reader of `read_pair`."""
    write_file(folder / (KEY + _NEXT), key_pem, 0o600)
    write_file(folder / (CERT + _NEXT), certificate_pem, 0o644)
    os.replace(folder / (KEY + _NEXT), folder / KEY)
    os.replace(folder / (CERT + _NEXT), folder / CERT)
    files.sync_folder(folder)


def read_pair(folder: Path) -> KeyPair:
    """Read the key and the certificate that fits it.

    Raises:
        IdentityError: A file is missing, unreadable, not PEM, readable by others, or the two do not fit.
    """
    key_path = folder / KEY
    for attempt in range(2):
        check_private(key_path)
        key_pem = read_bytes(key_path)
        public = public_bytes(parse_key(key_pem, key_path))
        for candidate in (folder / CERT, folder / (CERT + _NEXT)):
            if candidate.name != CERT and not candidate.exists():
                continue
            certificate_pem = read_bytes(candidate)
            certificate = parse_certificate(certificate_pem, candidate)
            if public_bytes(certificate) == public:
                return KeyPair(certificate, certificate_pem, key_pem)
        if attempt:
            break  # the second look rules out a renewal that happened between the two reads
    raise IdentityError(
        f"{folder / CERT} does not belong to {key_path}: put back the pair that belongs together, or enrol again "
        f"into an empty folder"
    )


def read_about(folder: Path) -> About:
    """Read `identity.json`.

    Raises:
        IdentityError: It is missing or holds something else.
    """
    path = folder / ABOUT
    raw = read_bytes(path)
    try:
        fields = json.loads(raw)
        about = About(
            federation=check_name(str(fields["federation"]), "federation"),
            role=Role(fields["role"]),
            name=check_name(str(fields["name"]), "name"),
            coordinator=str(fields.get("coordinator", "")),
            enrolment=str(fields.get("enrolment", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as err:
        raise IdentityError(f"{path} is not an identity file ({err}): enrol again into an empty folder") from None
    return about


def read_bytes(path: Path, missing: str = _NO_IDENTITY) -> bytes:
    """Read a file of an identity folder, or one for it.

    Args:
        path: The file.
        missing: What to do where there is none.

    Raises:
        IdentityError: It is missing or unreadable.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise IdentityError(f"{path} is missing: {missing}") from None
    except OSError as err:
        raise IdentityError(f"cannot read {path}: {err.strerror}; run as the user who owns it") from None


def check_private(path: Path) -> None:
    """Refuse a key that its group or others may read.

    Raises:
        IdentityError: The file's mode is too open, or the file is missing.
    """
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        read_bytes(path)  # raises with the reason
        raise
    if mode & 0o077:
        raise IdentityError(f"{path} has mode {mode:04o}, so others can use this key: run `chmod 600 {path}`")


def parse_key(pem: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
    """Parse an unencrypted EC private key.

    Raises:
        IdentityError: It is something else.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except UNREADABLE:
        raise IdentityError(f"{path} holds no private key in PEM without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise IdentityError(f"{path} holds a key of another kind; kernfed uses ECDSA P-256")
    return key


def parse_certificate(pem: bytes, path: Path | str) -> x509.Certificate:
    """Parse the first certificate of a PEM text.

    Raises:
        IdentityError: There is none, or none with a key of a known kind.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        certificate.public_key()  # it is parsed only now
    except UNREADABLE:
        raise IdentityError(f"{path} holds no certificate in PEM") from None
    return certificate


def next_key(role: Role, held: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
    """Key of the certificate after this one: operators and clients keep theirs, which others may go by.

    A client's policy may name operators' keys, and, for secure sums, those of other clients.

    Raises:
        IdentityError: The key that is held cannot be read.
    """
    return ec.generate_private_key(ec.SECP256R1()) if role is Role.COORDINATOR else parse_key(held, path / KEY)


def key_sha256(key: ec.EllipticCurvePublicKey) -> str:
    """Fingerprint of a public key: 64 hexadecimal digits."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def public_bytes(holder: ec.EllipticCurvePrivateKey | x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """DER of the public key in a key, certificate or signing request."""
    return holder.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
