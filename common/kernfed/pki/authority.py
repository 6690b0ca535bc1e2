"""The federation's private CA: makes itself, and signs public keys for names that the caller decides.

ECDSA P-256 with SHA-256. Nothing in a signing request but its public key is used. A coordinator's certificate serves
TLS (DNS and IP names, serverAuth); clients and operators get clientAuth alone and no DNS name, so that no client can
pass for the coordinator.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kernfed.errors import CertificateError, ConfigError
from kernfed.pki import folder
from kernfed.pki.names import UNREADABLE, Principal, Role, check_name

CA_KEY = "ca.key"
CA_LIFETIME = timedelta(days=3653)
DEFAULT_LIFETIME = timedelta(days=90)
CLOCK_SKEW = timedelta(minutes=5)
"""Certificates begin this long before they are made, for peers whose clock is behind."""

MAX_PEM_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA certificate and its key, in memory."""

    federation: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, federation: str, now: datetime) -> Authority:
        """Make a new CA that is valid for ten years.

        Raises:
            ConfigError: `federation` is not a valid name.
        """
        check_name(federation, "federation")
        key = new_key()
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, federation),
                x509.NameAttribute(NameOID.COMMON_NAME, "kernfed CA"),
            ]
        )
        certificate = (
            _builder(subject, subject, key.public_key(), now - CLOCK_SKEW, now + CA_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(sign_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(federation, certificate, key)

    @classmethod
    def load(cls, pki: Path) -> Authority:
        """Read `ca.pem` and `ca.key` of a PKI folder.

        Raises:
            IdentityError: A file is missing, not PEM, too openly readable, or the two do not fit.
            CertificateError: The CA certificate was not made by this module.
        """
        folder.check_private(pki / CA_KEY)
        key = folder.parse_key(folder.read_bytes(pki / CA_KEY), pki / CA_KEY)
        certificate = folder.parse_certificate(folder.read_bytes(pki / folder.CA), pki / folder.CA)
        if folder.public_bytes(key) != folder.public_bytes(certificate):
            raise CertificateError(f"{pki / folder.CA} does not belong to {pki / CA_KEY}: restore both from one backup")
        names = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        if len(names) != 1:
            raise CertificateError(f"{pki / folder.CA} is not the certificate of a kernfed CA")
        return cls(str(names[0].value), certificate, key)

    @property
    def certificate_pem(self) -> bytes:
        """The CA certificate in PEM."""
        return certificate_pem(self.certificate)

    def issue(
        self,
        public_key: ec.EllipticCurvePublicKey,
        principal: Principal,
        *,
        now: datetime,
        lifetime: timedelta = DEFAULT_LIFETIME,
        hosts: Sequence[str] = (),
        not_before: datetime | None = None,
    ) -> x509.Certificate:
        """Sign a public key for a name.

        Args:
            public_key: Key of the holder.
            principal: The name; decided by a token, a caller's certificate or the operator, never by the request.
            now: Time of issue.
            lifetime: From `now` to the certificate's end; cut at the CA's own end.
            hosts: DNS names and IP addresses of a coordinator.
            not_before: Beginning; five minutes before `now` where None.

        Raises:
            ConfigError: Hosts for somebody who is not a coordinator, or none for one; another federation's name.
        """
        if (principal.role is Role.COORDINATOR) != bool(hosts):
            raise ConfigError(f"host names belong in the coordinator's certificate and in no other, not in {principal}")
        if principal.federation != self.federation:
            raise ConfigError(f"this CA signs for {self.federation!r}, not for {principal.federation!r}")
        usage = (
            ExtendedKeyUsageOID.SERVER_AUTH if principal.role is Role.COORDINATOR else ExtendedKeyUsageOID.CLIENT_AUTH
        )
        names = [x509.UniformResourceIdentifier(principal.uri), *map(_general_name, hosts)]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(principal)[:64])])
        end = min(now + lifetime, self.certificate.not_valid_after_utc)
        builder = _builder(subject, self.certificate.subject, public_key, not_before or now - CLOCK_SKEW, end)
        return (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )


def new_key() -> ec.EllipticCurvePrivateKey:
    """A fresh ECDSA P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS 8 PEM without a password; the file's mode protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """A certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate's DER, 64 hexadecimal digits."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def serial_of(certificate: x509.Certificate) -> str:
    """Serial number as the registry and every log write it: hexadecimal."""
    return f"{certificate.serial_number:x}"


def make_csr(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """A signing request in PEM. Its subject is for the person who reads it; the CA ignores it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def public_key_of_csr(pem: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a signing request whose signature shows that the sender holds the private key.

    Raises:
        CertificateError: The request is too large, malformed, badly signed or not for a P-256 key.
    """
    if len(pem) > MAX_PEM_BYTES:
        raise CertificateError(f"the signing request has {len(pem)} bytes, more than {MAX_PEM_BYTES}")
    try:
        request = x509.load_pem_x509_csr(pem)
        genuine = request.is_signature_valid
        key = request.public_key()
    except (ValueError, TypeError, InvalidSignature, x509.InvalidVersion):
        raise CertificateError("this is not a signing request in PEM: make one with `kernfed-client csr`") from None
    except UnsupportedAlgorithm as err:
        raise CertificateError(f"the signing request uses an algorithm that kernfed does not ({err})") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError("the signing request is not for an ECDSA P-256 key: make one with `kernfed-client csr`")
    if not genuine:
        raise CertificateError("the signing request's signature is wrong: it was changed on the way; send it again")
    return key


def signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether `issuer`'s key signed `certificate`."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, *UNREADABLE):
        return False
    return True


def utc_now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"{host!r} is neither a host name in ASCII nor an IP address") from None


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    not_before: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )
