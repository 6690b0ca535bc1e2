"""Operators whose signatures count no more, as the CA signed it; no restart and no older list forgets one.

A coordinator may withhold newer lists. So the client also knows until when the newest list that it was given proves
that nobody else was revoked, and says so once that time is over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509

from kernfed import files
from kernfed.errors import CertificateError
from kernfed.pki.authority import utc_now
from kernfed.pki.revocation_list import RENEWED_EVERY, RevocationList, read_list
from kernfed.pki.submission import SIGNED_AHEAD
from kernfed.wording import moment

log = structlog.get_logger(__name__)

REVOKED_FILE = "revoked_operators.json"
MAX_SERIALS = 50_000
_NEVER = datetime.fromtimestamp(0, UTC)
_REMEDY = (
    "the coordinator may withhold who was revoked, be of an older release, or one of the two clocks is wrong; ask its "
    "operator"
)


class RevokedOperators:
    """Serials of operators' certificates, each with the time of its revocation."""

    def __init__(self, ca: x509.Certificate, path: Path | None = None, now: Callable[[], datetime] = utc_now) -> None:
        """Read what an earlier life was told.

        Args:
            ca: The federation's.
            path: Where it is kept; None: it is not.
            now: Clock.
        """
        self._ca = ca
        self._path = path
        self._now = now
        self._serials: dict[str, datetime] = {}
        self._newest = -1
        self._issued_at = self._valid_until = _NEVER
        self._stale_said = False
        self._complained: dict[str, datetime] = {}
        if path is not None and path.exists():
            try:
                self._restore(path)
            except (OSError, OverflowError, ValueError, KeyError, AttributeError, TypeError) as err:
                log.error("revoked operators cannot be read; the coordinator tells them again", error=str(err))

    def _restore(self, path: Path) -> None:
        kept = json.loads(path.read_bytes())
        newest, revoked = int(kept["number"]), kept["revoked"]
        serials = {str(serial): _at(when) for serial, when in revoked.items()}
        self._issued_at, self._valid_until = _at(kept.get("issued_at", 0)), _at(kept.get("valid_until", 0))
        self._newest, self._serials = newest, serials

    def since(self, serial: str) -> datetime | None:
        """When a certificate was revoked; None: nothing says that it was."""
        return self._serials.get(serial)

    @property
    def judged_by(self) -> datetime | None:
        """When the newest list was signed, while it counts; None: it does no more, or there is none."""
        return self._issued_at if self._now() < self._valid_until else None

    def stale(self) -> str:
        """Why nothing proves at this moment who else was revoked; empty: a list does. Each change is logged once."""
        if self.judged_by is not None:
            if self._stale_said:
                log.info("there is a fresh list of revoked operators again", issued_at=moment(self._issued_at))
            self._stale_said = False
            return ""
        if self._issued_at == _NEVER:
            why = f"no list of revoked operators has come that counts: {_REMEDY}"
        else:
            why = (
                f"the newest list of revoked operators was signed on {moment(self._issued_at)}, and counted until "
                f"{moment(self._valid_until)}: {_REMEDY}"
            )
        if not self._stale_said:
            log.warning("it is not known who was revoked lately", why=why)
        self._stale_said = True
        return why

    def told(self, der: bytes) -> None:
        """Learn of a list from the coordinator; one that does not hold is logged, and changes nothing."""
        try:
            found = read_list(der, self._ca)
        except CertificateError as err:
            self._complain("what the coordinator says of revoked operators does not hold", error=str(err))
            return
        if found.number < self._newest:
            self._complain(
                "the coordinator's list of revoked operators is older than one that came before; both count. Was its "
                "PKI restored from a backup? Then revoke again whom it lost",
                issued_at=moment(found.issued_at),
            )
        new = {serial: when for serial, when in found.revoked.items() if serial not in self._serials}
        if len(self._serials) + len(new) > MAX_SERIALS:
            self._complain("more operators are revoked than any federation has; no more are learned", most=MAX_SERIALS)
            return
        newer = self._is_newer(found)
        if newer:
            self._issued_at, self._valid_until = found.issued_at, found.valid_until
        if new or newer or found.number > self._newest:
            self._newest = max(found.number, self._newest)
            self._serials |= new
            self._keep()
        if new:
            log.warning("operators were revoked; what they signed is refused", serials=sorted(new)[:10], num=len(new))

    def _is_newer(self, found: RevocationList) -> bool:
        """Whether a list proves more than the one before: neither an older one does, nor one of another day to come."""
        if found.issued_at > self._now() + SIGNED_AHEAD:
            self._complain(
                "the coordinator's list of revoked operators was signed at a time to come; whom it names is refused, "
                "and it proves nothing of others. Set the clock that is wrong",
                issued_at=moment(found.issued_at),
            )
            return False
        return found.valid_until > self._valid_until

    def _complain(self, event: str, **facts: str | int) -> None:
        """Log what an honest coordinator does not do, once an hour: it could send as many lists as it likes."""
        now = self._now()
        if not timedelta(0) <= now - self._complained.get(event, _NEVER) < RENEWED_EVERY:
            self._complained[event] = now
            log.error(event, **facts)

    def _keep(self) -> None:
        if self._path is None:
            return
        kept = {
            "number": self._newest,
            "issued_at": self._issued_at.timestamp(),
            "valid_until": self._valid_until.timestamp(),
            "revoked": {serial: when.timestamp() for serial, when in self._serials.items()},
        }
        try:
            files.replace(self._path, json.dumps(kept).encode(), durable=True, mode=0o600)
        except OSError as err:  # it counts in this life all the same
            log.error("revoked operators cannot be kept", error=str(err))


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(float(seconds), UTC)
