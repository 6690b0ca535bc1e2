"""Names in a federation: `spiffe://<federation>/client/<name>`, `/operator/<name>`, `/coordinator`.

The URI in a certificate's subject alternative names is the only name that anybody believes; the subject's common
name is never read.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from kernfed.errors import CertificateError, ConfigError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,62})")
_SCHEME = "spiffe://"


class Role(enum.StrEnum):
    """Role of a certificate's holder."""

    CLIENT = "client"
    OPERATOR = "operator"
    COORDINATOR = "coordinator"


def check_name(name: str, what: str) -> str:
    """Return `name` if it may name a federation, a client or an operator.

    Raises:
        ConfigError: It is not 1 to 63 characters of a-z, 0-9 and '-', or starts with '-'.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what} {name[:80]!r} is not a valid name: use 1 to 63 of a-z, 0-9 and '-', not starting with '-'"
        )
    return name


@dataclass(frozen=True, slots=True)
class Principal:
    """Name and role that a certificate stands for."""

    federation: str
    role: Role
    name: str
    """`coordinator` for the coordinator."""

    @property
    def uri(self) -> str:
        """The SPIFFE URI, as it stands in certificates."""
        return f"{_SCHEME}{self.federation}/{self}"

    def __str__(self) -> str:
        """`client/cleveland`, `operator/ann` or `coordinator`."""
        return "coordinator" if self.role is Role.COORDINATOR else f"{self.role}/{self.name}"


def parse_principal(federation: str, text: str) -> Principal:
    """Read `client/NAME`, `operator/NAME` or `coordinator`.

    Raises:
        ConfigError: The text is none of these.
    """
    if text == Role.COORDINATOR:
        return Principal(federation, Role.COORDINATOR, text)
    role, slash, name = text.partition("/")
    if not slash or role not in (Role.CLIENT, Role.OPERATOR):
        raise ConfigError(f"{text[:80]!r} is not a role and name: write client/NAME or operator/NAME")
    return Principal(federation, Role(role), check_name(name, f"{role} name"))


UNREADABLE = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)
"""Errors of the parser for certificates and keys that are damaged, or of a kind that nobody uses."""


def principal_of(certificate: x509.Certificate) -> Principal:
    """Read the one SPIFFE URI of a certificate.

    Raises:
        CertificateError: It has none, several, or one that is not a name of this system.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *UNREADABLE):
        raise CertificateError("the certificate carries no SPIFFE name; kernfed's CA did not issue it") from None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1 or not uris[0].startswith(_SCHEME):
        raise CertificateError(f"the certificate carries {len(uris)} URI names; want exactly one spiffe:// name")
    federation, _, path = uris[0].removeprefix(_SCHEME).partition("/")
    try:
        return parse_principal(check_name(federation, "federation"), path)
    except ConfigError as err:
        raise CertificateError(f"the certificate's name {uris[0][:200]!r} is not one of kernfed's: {err}") from None
