"""Operators whose signatures count no more, as the CA signed it; no restart and no older list forgets one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import structlog
from cryptography import x509

from kernfed import files
from kernfed.errors import CertificateError
from kernfed.pki.revocation_list import read_list
from kernfed.wording import moment

log = structlog.get_logger(__name__)

REVOKED_FILE = "revoked_operators.json"
MAX_SERIALS = 50_000


class RevokedOperators:
    """Serials of operators' certificates, each with the time of its revocation."""

    def __init__(self, ca: x509.Certificate, path: Path | None = None) -> None:
        """Read what an earlier life was told.

        Args:
            ca: The federation's.
            path: Where it is kept; None: it is not.
        """
        self._ca = ca
        self._path = path
        self._serials: dict[str, float] = {}
        self._newest = -1
        if path is not None and path.exists():
            try:
                kept = json.loads(path.read_bytes())
                self._newest = int(kept["number"])
                self._serials = {str(serial): float(when) for serial, when in kept["revoked"].items()}
            except (OSError, ValueError, KeyError, AttributeError, TypeError) as err:
                log.error("revoked operators cannot be read; the coordinator tells them again", error=str(err))

    def since(self, serial: str) -> datetime | None:
        """When a certificate was revoked; None: nothing says that it was."""
        when = self._serials.get(serial)
        return None if when is None else datetime.fromtimestamp(when, UTC)

    def told(self, der: bytes) -> None:
        """Learn of a list from the coordinator; one that does not hold is logged, and changes nothing."""
        try:
            found = read_list(der, self._ca)
        except CertificateError as err:
            log.error("what the coordinator says of revoked operators does not hold", error=str(err))
            return
        if found.number < self._newest:
            log.warning(
                "the coordinator's list of revoked operators is older than one that came before; both count. Was its "
                "PKI restored from a backup? Then revoke again whom it lost",
                issued_at=moment(found.issued_at),
            )
        new = {serial: when.timestamp() for serial, when in found.revoked.items() if serial not in self._serials}
        if len(self._serials) + len(new) > MAX_SERIALS:
            log.error("more operators are revoked than any federation has; no more are learned", most=MAX_SERIALS)
            return
        if new or found.number > self._newest:
            self._newest = max(found.number, self._newest)
            self._serials |= new
            self._keep()
        if new:
            log.warning("operators were revoked; what they signed is refused", serials=sorted(new)[:10], num=len(new))

    def _keep(self) -> None:
        if self._path is None:
            return
        kept = json.dumps({"number": self._newest, "revoked": self._serials})
        try:
            files.replace(self._path, kept.encode(), durable=True, mode=0o600)
        except OSError as err:  # it counts in this life all the same
            log.error("revoked operators cannot be kept", error=str(err))
