"""A federation's PKI folder: what the operator's commands and the coordinator's enrolment service do with it.

Layout: `ca.pem`, `ca.key`, `registry.sqlite`, `coordinator/` and `operator-<name>/` (identity folders). Only this
folder can make certificates: back it up, and keep it on the coordinator's machine alone.
"""

from __future__ import annotations

import getpass
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from kernfed import files
from kernfed.errors import CertificateError, ConfigError
from kernfed.pki import folder
from kernfed.pki.authority import (
    CA_KEY,
    CLOCK_SKEW,
    DEFAULT_LIFETIME,
    Authority,
    certificate_pem,
    fingerprint,
    key_pem,
    new_key,
    public_key_of_csr,
    serial_of,
    signed_by,
    utc_now,
)
from kernfed.pki.folder import About
from kernfed.pki.names import Principal, Role, check_name, parse_principal, principal_of
from kernfed.pki.records import FederationInfo, Revocation
from kernfed.pki.registry import REGISTRY, Registry
from kernfed.pki.tokens import Token, encode_token, new_secret
from kernfed.wire.channel import address, split_address

COORDINATOR_FOLDER = "coordinator"
DEFAULT_PORT = 8470
DEFAULT_ENROLMENT_PORT = 8471
DEFAULT_TOKEN_LIFETIME = timedelta(hours=24)
HERE_ALONE = ("localhost", "127.0.0.1")
"""Names of the coordinator that nobody on another machine can dial."""


@dataclass(frozen=True, slots=True)
class FederationPki:
    """A CA, its registry and the folder that both live in."""

    path: Path
    authority: Authority
    registry: Registry
    now: Callable[[], datetime] = utc_now

    @classmethod
    def init(
        cls,
        path: Path,
        federation: str,
        *,
        hosts: Sequence[str] = (),
        port: int = DEFAULT_PORT,
        enrolment_port: int = DEFAULT_ENROLMENT_PORT,
        operator: str | None = None,
        lifetime: timedelta = DEFAULT_LIFETIME,
        now: Callable[[], datetime] = utc_now,
    ) -> FederationPki:
        """Make a CA, a registry, and the identities of the coordinator and one operator.

        Args:
            path: New folder.
            federation: Name of the federation.
            hosts: Names and addresses that clients dial; the first is the one that tokens tell them. Default:
                `localhost`, `127.0.0.1` and this machine's name.
            port: Port of the coordinator.
            enrolment_port: Port for enrolment.
            operator: Name of the first operator. Default: the user's name.
            lifetime: Of the two certificates.
            now: Clock.

        Raises:
            ConfigError: A name is not valid, or the folder is in use; nothing was changed then.
        """
        check_name(federation, "federation")
        operator = check_name(operator or default_operator(), "operator")
        hosts = tuple(hosts) or _default_hosts()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(
                f"{path} exists and is not empty; nothing was changed. For another federation give another --dir; to "
                f"start this one anew, move the folder away first (its clients must then enrol again)"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        info = FederationInfo(federation, address(hosts[0], port), address(hosts[0], enrolment_port), hosts)
        # Made aside and moved into place, so that an interrupted run leaves nothing half done.
        aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=files.NEW))
        try:
            authority = Authority.create(federation, now())
            folder.write_file(aside / CA_KEY, key_pem(authority.key))
            folder.write_file(aside / folder.CA, authority.certificate_pem, 0o644)
            made = cls(aside, authority, Registry.create(aside / REGISTRY, info), now)
            made.make_identity(Principal(federation, Role.COORDINATOR, "coordinator"), lifetime=lifetime)
            made.make_identity(Principal(federation, Role.OPERATOR, operator), lifetime=lifetime)
            files.move_folder(aside, path, over=False)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return cls(path, authority, Registry(path / REGISTRY), now)

    @classmethod
    def open(cls, path: Path, now: Callable[[], datetime] = utc_now) -> FederationPki:
        """Open an existing PKI folder.

        Raises:
            ConfigError: It is not one.
            IdentityError: The CA's files are unreadable, too openly readable, or do not fit.
        """
        registry = Registry(path / REGISTRY)
        return cls(path, Authority.load(path), registry, now)

    @property
    def federation(self) -> str:
        """Name of the federation."""
        return self.authority.federation

    @property
    def coordinator_folder(self) -> Path:
        """Identity folder of the coordinator."""
        return self.path / COORDINATOR_FOLDER

    def operator_folder(self, name: str) -> Path:
        """Identity folder of an operator that was made here."""
        return self.path / f"operator-{name}"

    def make_identity(
        self, principal: Principal, into: Path | None = None, *, lifetime: timedelta = DEFAULT_LIFETIME
    ) -> Path:
        """Make a key and a certificate here, for the coordinator or an operator.

        Returns:
            The identity folder.
        """
        if into is None:
            is_coordinator = principal.role is Role.COORDINATOR
            into = self.coordinator_folder if is_coordinator else self.path / f"{principal.role}-{principal.name}"
        info = self.registry.info()
        key = new_key()
        certificate = self._issue(key.public_key(), principal, lifetime)
        self.registry.record(certificate, "init", self.now())
        dials = principal.role is not Role.COORDINATOR
        about = About(
            principal.federation,
            principal.role,
            principal.name,
            coordinator=info.coordinator if dials else "",
            enrolment=info.enrolment if dials else "",
        )
        folder.write_identity(
            into,
            about,
            certificate_pem=certificate_pem(certificate),
            key_pem=key_pem(key),
            ca_pem=self.authority.certificate_pem,
        )
        return into

    def make_token(
        self, client: str, *, lifetime: timedelta = DEFAULT_TOKEN_LIFETIME, enrolment: str | None = None
    ) -> str:
        """Make a single-use token for a client.

        Args:
            client: Name that its holder gets.
            lifetime: How long it can be used.
            enrolment: `host:port` to tell the client, where it is not the federation's usual one.

        Returns:
            The token text; it is kept nowhere.
        """
        check_name(client, "client")
        if enrolment is not None:
            split_address(enrolment)
        now = self.now()
        token = Token(
            enrolment=enrolment or self.registry.info().enrolment,
            federation=self.federation,
            client=client,
            ca_sha256=fingerprint(self.authority.certificate),
            secret=new_secret(),
            expires=(now + lifetime).replace(microsecond=0),
        )
        self.registry.add_token(token.secret, client, now=now, expires=token.expires)
        return encode_token(token)

    def enrol(self, secret: str, client: str, csr_pem: bytes) -> bytes:
        """Trade a token for a certificate in PEM.

        Raises:
            TokenError: The token does not hold.
            CertificateError: The request is malformed.
        """
        public_key = public_key_of_csr(csr_pem)
        return self.registry.redeem(
            secret,
            client,
            folder.key_sha256(public_key),
            now=self.now(),
            issue=lambda: self._issue(public_key, Principal(self.federation, Role.CLIENT, client), DEFAULT_LIFETIME),
        )

    def sign(self, csr_pem: bytes, principal: Principal, *, lifetime: timedelta = DEFAULT_LIFETIME) -> bytes:
        """Sign a request that came by another way, for a name that the operator states.

        Returns:
            A bundle for `kernfed-client install-cert`: addresses as text, the certificate, the CA's certificate.
        """
        if principal.role is Role.COORDINATOR:
            raise ConfigError("the coordinator's certificate is made by `kernfed pki init` and renewed by `pki renew`")
        certificate = self._issue(public_key_of_csr(csr_pem), principal, lifetime)
        self.registry.record(certificate, "csr", self.now())
        info = self.registry.info()
        head = f"coordinator: {info.coordinator}\nenrolment: {info.enrolment}\n".encode()
        return head + certificate_pem(certificate) + self.authority.certificate_pem

    def renew(self, certificate: x509.Certificate, csr_pem: bytes) -> bytes:
        """Trade a certificate that still holds for a newer one, in PEM, of the same name and length of life.

        Raises:
            RevokedError: It was revoked.
            CertificateError: It is not this federation's, or the request is malformed.
        """
        principal = principal_of(certificate)
        if not signed_by(certificate, self.authority.certificate) or principal.federation != self.federation:
            raise CertificateError(f"the certificate of {principal} was not issued by this federation")
        public_key = public_key_of_csr(csr_pem)
        return self.registry.renew(
            serial_of(certificate),
            now=self.now(),
            issue=lambda: self._issue(public_key, principal, lifetime_of(certificate)),
        )

    def renew_folder(
        self, path: Path, *, lifetime: timedelta | None = None, hosts: Sequence[str] = (), only: bool = False
    ) -> datetime:
        """Renew an identity folder on this machine with the CA's own key, even after it expired.

        Args:
            path: Identity folder of the coordinator or an operator.
            lifetime: Of the new certificate; as before where None.
            hosts: New names and addresses of the coordinator, beside those of before. Tokens hold the first one from
                now on, unless it is a name for this machine alone.
            only: Whether the names of before count no more.

        Returns:
            When the new certificate ends.

        Raises:
            RevokedError: The old certificate was revoked.
        """
        about = folder.read_about(path)
        pair = folder.read_pair(path)
        old = pair.certificate
        if not signed_by(old, self.authority.certificate):
            raise CertificateError(f"{path / folder.CERT} was not issued by the CA in {self.path}: give its own --dir")
        if hosts:
            if about.role is not Role.COORDINATOR:
                raise ConfigError(f"only the coordinator's certificate holds host names, not that of {about.principal}")
            info = self.registry.info()
            before, port = split_address(info.coordinator)
            _, enrolment_port = split_address(info.enrolment)
            first = before if hosts[0] in HERE_ALONE and not only else hosts[0]
            at, enrolment = address(first, port), address(first, enrolment_port)
            names = tuple(dict.fromkeys([first, *hosts, *(() if only else info.hosts)]))
            self.registry.set_info(FederationInfo(info.federation, at, enrolment, names))
        key = folder.next_key(about.role, pair.key_pem, path)
        pem = self.registry.renew(
            serial_of(old),
            now=self.now(),
            issue=lambda: self._issue(key.public_key(), about.principal, lifetime or lifetime_of(old)),
        )
        folder.replace_pair(path, certificate_pem=pem, key_pem=key_pem(key))
        return folder.parse_certificate(pem, path).not_valid_after_utc

    def revoke(self, target: str, *, why: str = "") -> list[Revocation]:
        """Revoke `client/NAME`, `operator/NAME`, a bare client name, or a serial number.

        Returns:
            What was revoked now.

        Raises:
            CertificateError: The registry knows no such certificate.
        """
        is_serial = re.fullmatch(r"[0-9a-fA-F]{32,40}", target) is not None
        if is_serial:
            return self.registry.revoke(target, now=self.now(), why=why)
        principal = parse_principal(self.federation, target if "/" in target else f"client/{target}")
        return self.registry.revoke(principal, now=self.now(), why=why)

    def _issue(
        self, public_key: ec.EllipticCurvePublicKey, principal: Principal, lifetime: timedelta
    ) -> x509.Certificate:
        hosts = self.registry.info().hosts if principal.role is Role.COORDINATOR else ()
        return self.authority.issue(public_key, principal, now=self.now(), lifetime=lifetime, hosts=hosts)


def lifetime_of(certificate: x509.Certificate) -> timedelta:
    """From a certificate's issue to its end, without the minutes by which it was backdated."""
    span = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return max(span - CLOCK_SKEW, CLOCK_SKEW)


def default_operator() -> str:
    """The user's name where it is a valid name, else `operator`."""
    try:
        name = getpass.getuser().lower()
    except (OSError, KeyError):
        return "operator"
    return name if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name) else "operator"


def _default_hosts() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*HERE_ALONE, socket.gethostname())))
