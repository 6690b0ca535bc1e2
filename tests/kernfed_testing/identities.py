"""A federation's PKI in a temporary folder, and certificates that are wrong in one way each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from kernfed.pki import folder
from kernfed.pki.authority import certificate_pem, key_pem, new_key, utc_now
from kernfed.pki.federation import FederationPki
from kernfed.pki.folder import About
from kernfed.pki.identity import Identity
from kernfed.pki.names import Principal, Role

LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Identities:
    """A test federation: its PKI, and identity folders beside it under `root`."""

    root: Path
    pki: FederationPki

    @property
    def coordinator(self) -> Path:
        """Identity folder of the coordinator."""
        return self.pki.coordinator_folder

    @property
    def operator(self) -> Path:
        """Identity folder of the operator `ann`."""
        return self.pki.operator_folder("ann")

    def set_ports(self, port: int, enrolment_port: int | None = None, host: str = "localhost") -> None:
        """State the ports of running servers; folders made from now on point there."""
        info = self.pki.registry.info()
        coordinator, enrolment = f"{host}:{port}", f"{host}:{enrolment_port or port}"
        self.pki.registry.set_info(type(info)(info.federation, coordinator, enrolment, info.hosts))

    def make(
        self,
        role: Role,
        name: str,
        *,
        not_before: datetime | None = None,
        lifetime: timedelta = timedelta(days=90),
        into: Path | None = None,
    ) -> Path:
        """Make an identity folder, by default `root/<role>-<name>`.

        Args:
            role: Role of its holder.
            name: Name of its holder.
            not_before: Beginning of the certificate; five minutes ago where None.
            lifetime: From now to the certificate's end; negative: expired.
            into: Folder to make.
        """
        into = into or self.root / f"{role}-{name}"
        now = utc_now()
        info = self.pki.registry.info()
        principal = Principal(self.pki.federation, role, name)
        key = new_key()
        if lifetime <= timedelta(0) and not_before is None:
            not_before = now + lifetime - timedelta(days=1)
        certificate = self.pki.authority.issue(
            key.public_key(),
            principal,
            now=now,
            lifetime=lifetime,
            hosts=info.hosts if role is Role.COORDINATOR else (),
            not_before=not_before,
        )
        self.pki.registry.record(certificate, "init", now)
        about = About(principal.federation, role, name, info.coordinator, info.enrolment)
        folder.write_identity(
            into,
            about,
            certificate_pem=certificate_pem(certificate),
            key_pem=key_pem(key),
            ca_pem=self.pki.authority.certificate_pem,
        )
        return into

    def client(self, name: str = "cleveland", *, not_before: datetime | None = None, days: float = 90) -> Path:
        """Identity folder of a client."""
        return self.make(Role.CLIENT, name, not_before=not_before, lifetime=timedelta(days=days))

    def load_client(self, name: str = "cleveland") -> Identity:
        """A client's identity, made where it is not there yet."""
        path = self.root / f"client-{name}"
        return Identity.load(path if path.exists() else self.client(name))


def make_identities(
    root: Path,
    *,
    federation: str = "hearts",
    hosts: tuple[str, ...] = LOOPBACK,
    port: int = 8470,
    enrolment: int = 8471,
) -> Identities:
    """Make a CA, a registry, a coordinator's identity and that of the operator `ann` under `root/pki`."""
    pki = FederationPki.init(root / "pki", federation, hosts=hosts, port=port, enrolment_port=enrolment, operator="ann")
    return Identities(root, pki)
