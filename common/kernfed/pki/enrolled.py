"""At the site: the key made there, the request for a certificate, and the check of the certificate that comes back."""

from __future__ import annotations

import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from kernfed.errors import CertificateError, ConfigError, IdentityError
from kernfed.pki import folder as files
from kernfed.pki.authority import key_pem, make_csr, new_key, signed_by
from kernfed.pki.folder import About
from kernfed.pki.names import Principal, Role, principal_of
from kernfed.wire.channel import split_address
from kernfed.wording import moment

REQUEST = "request.csr"


def site_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """The key of a folder that is not enrolled yet: the one that waits there, or a new one.

    Raises:
        IdentityError: The folder holds a certificate already, or a key that others can read.
    """
    if (folder / files.CERT).exists():
        raise IdentityError(
            f"{folder} is enrolled already ({_held(folder)}): give another folder with --identity, or move this one "
            f"away to replace it"
        )
    files.make_folder(folder)
    path = folder / files.KEY
    if path.exists():
        files.check_private(path)
        return files.parse_key(files.read_bytes(path), path)
    key = new_key()
    files.write_file(path, key_pem(key))
    return key


def write_request(folder: Path, name: str) -> Path:
    """Make a key in `folder` and write `request.csr` beside it, for offline signing.

    Returns:
        Path of the request; the key stays.
    """
    path = folder / REQUEST
    files.write_file(path, make_csr(site_key(folder), name), 0o644)
    return path


def check_issued(pem: bytes, key: ec.EllipticCurvePrivateKey, principal: Principal, ca_pem: bytes) -> None:
    """Check a certificate that the coordinator sent before it is stored.

    Raises:
        CertificateError: It is for another key or name, or the CA did not sign it.
    """
    try:
        certificate = files.parse_certificate(pem, "the coordinator's answer")
        ca = files.parse_certificate(ca_pem, files.CA)
    except IdentityError as err:
        raise CertificateError(str(err)) from None
    if files.public_bytes(certificate) != files.public_bytes(key):
        raise CertificateError("the coordinator sent a certificate for another key; nothing was stored: try again")
    if not signed_by(certificate, ca):
        raise CertificateError("the coordinator sent a certificate that its CA did not sign; nothing was stored")
    got = principal_of(certificate)
    if got != principal:
        raise CertificateError(
            f"the coordinator sent a certificate for {got} of {got.federation}, not for {principal} of "
            f"{principal.federation}; nothing was stored"
        )


def install_bundle(
    folder: Path, bundle: Path, *, ca: Path | None = None, coordinator: str = "", enrolment: str = ""
) -> Principal:
    """Put a certificate signed offline (`kernfed pki sign`) beside the key that was made for it.

    Args:
        folder: Where `key.pem` waits.
        bundle: The certificate, as `kernfed pki sign` writes it: addresses, certificate, the CA's certificate.
        ca: The CA's certificate, where the bundle holds none or it came by a safer way.
        coordinator: `host:port`, where the bundle does not say.
        enrolment: `host:port` of the enrolment port, likewise.

    Returns:
        Whom the identity stands for.

    Raises:
        IdentityError: A file is missing, or the folder is enrolled already.
        CertificateError: The certificate is for another key, or the CA did not sign it.
        ConfigError: Nobody says where the coordinator is.
    """
    if not (folder / files.KEY).exists():
        raise IdentityError(f"{folder / files.KEY} is missing: install into the folder where the request was made")
    key = site_key(folder)
    raw = files.read_bytes(bundle, "give the file that `kernfed pki sign` wrote")
    certificate, *rest = re.findall(
        rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\r?\n?", raw, re.DOTALL
    ) or [b""]
    ca_pem = files.read_bytes(ca, "give the federation's ca.pem") if ca else b"".join(rest[:1])
    if not ca_pem:
        raise ConfigError(f"{bundle} holds no CA certificate: give the federation's ca.pem with --ca")
    principal = principal_of(files.parse_certificate(certificate, bundle))
    if principal.role is Role.COORDINATOR:
        raise CertificateError(f"{bundle} is the coordinator's certificate; a site gets one for client/NAME")
    check_issued(certificate, key, principal, ca_pem)
    coordinator = coordinator or _stated(raw, "coordinator")
    enrolment = enrolment or _stated(raw, "enrolment")
    if not coordinator:
        raise ConfigError(f"{bundle} does not say where the coordinator is: give --coordinator host:port")
    for stated in filter(None, (coordinator, enrolment)):
        split_address(stated)
    about = About(principal.federation, principal.role, principal.name, coordinator, enrolment)
    files.write_identity(folder, about, certificate_pem=certificate, key_pem=key_pem(key), ca_pem=ca_pem)
    (folder / REQUEST).unlink(missing_ok=True)
    return principal


def _stated(raw: bytes, key: str) -> str:
    found = re.search(rf"^{key}: (\S{{1,300}})\s*$".encode(), raw, re.MULTILINE)
    return found[1].decode(errors="replace") if found else ""


def _held(folder: Path) -> str:
    try:
        certificate = files.parse_certificate(files.read_bytes(folder / files.CERT), folder / files.CERT)
        return f"{principal_of(certificate)}, until {moment(certificate.not_valid_after_utc)}"
    except (IdentityError, CertificateError):
        return "with a certificate that cannot be read"
