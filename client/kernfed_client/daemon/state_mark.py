"""Whether the state folder is the one that this client had: what it told of its rows so far is remembered there alone.

A client that lost its state folder would deal its rows into blocks anew, and the sums of both times together tell about
fewer rows than `policy.min_rows`. So a random mark lies in the state folder and in the identity folder. A client whose
identity knows another mark refuses jobs on data until its administrator says that the state is new.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

import structlog

from kernfed import files
from kernfed.errors import ConfigError, PolicyError

log = structlog.get_logger(__name__)

MARK = "state-mark"
LOST = "the state folder is not the one that this client had: what it told of its rows so far is not known"
TO_OPERATORS = (
    "refuses jobs on data: its state folder is not the one that it had; its administrator puts that back, or says "
    "`kernfed-client new-state`"
)
_REMEDY = (
    "let this client's administrator put the folder back, from a backup where need be, or give it up with "
    "`kernfed-client new-state`"
)


class StateMark:
    """The marks of a client's identity and state folder."""

    def __init__(self, identity: Path, state: Path) -> None:
        self._identity, self._state = identity / MARK, state / MARK
        self._fits = False

    def begin(self) -> None:
        """Make what is missing at a first start, and tell the log where the state folder is another one."""
        known, found = _read(self._identity), _read(self._state)
        try:
            if not known:
                found = found or self._write(self._state, secrets.token_hex(16))
                self._write(self._identity, found)  # last: a crash before leaves what the next start takes over
        except OSError as err:
            log.warning("no mark can be kept, so a lost state folder would go unnoticed", error=str(err))
        if why := self.lost:
            log.error(why, remedy=_REMEDY, identity=str(self._identity.parent), state=str(self._state.parent))

    @property
    def lost(self) -> str:
        """That the state folder is another one, in words; empty: it is not. Once it fits it is not looked at again."""
        if not self._fits:
            known = _read(self._identity)
            self._fits = not known or _read(self._state) == known
        return "" if self._fits else LOST

    def check(self) -> None:
        """Refuse what tells of data.

        Raises:
            PolicyError: The state folder is another one.
        """
        if why := self.lost:
            raise PolicyError(f"{why}; {_REMEDY}")

    def accept(self) -> bool:
        """Take the state folder as it is; whether it was another one.

        Raises:
            ConfigError: It cannot be written.
        """
        lost = bool(self.lost)
        try:
            self._state.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if lost:
                self._write(self._state, _read(self._identity))
        except OSError as err:
            raise ConfigError(
                f"{self._state.parent}: the state folder cannot be written ({err.strerror or err}); run as its owner"
            ) from err
        self.begin()
        return lost

    @staticmethod
    def _write(path: Path, mark: str) -> str:
        files.replace(path, f"{mark}\n".encode(), durable=True, mode=0o600)
        return mark


def _read(path: Path) -> str:
    """A mark; empty where there is none."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="ascii").strip()[:64]
    return ""
