"""Reads the CA's registry over and over, through one connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from kernfed.errors import ConfigError
from kernfed.pki import successions
from kernfed.pki.records import IssuedCertificate, OperatorCertificate, Revocation
from kernfed.pki.registry_file import certificates, connect, operators, refuse_other_release, revocations, told

T = TypeVar("T")


class RegistryReader:
    """Reads revocations and certificates through one connection, for as long as the file is the same one.

    It needs no new descriptors, so it goes on where strangers' connections have used up all that the process may have.
    One caller at a time, from any thread.
    """

    def __init__(self, path: Path) -> None:
        """Connect when it is used first."""
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._file = (0, 0)

    def revocations(self, after: int) -> list[Revocation]:
        """Revocations with a number above `after`, in order.

        Raises:
            BusyError: Another process holds the file for long.
            ConfigError: The file cannot be read, or is another release's.
        """
        return self._read(lambda db: revocations(db, after))

    def certificates(self) -> list[IssuedCertificate]:
        """As `Registry.certificates`.

        Raises:
            BusyError: Another process holds the file for long.
            ConfigError: The file cannot be read, or is another release's.
        """
        return self._read(certificates)

    def operators(self, now: datetime) -> list[OperatorCertificate]:
        """All certificates of operators.

        Raises:
            BusyError: Another process holds the file for long.
            ConfigError: The file cannot be read, or is another release's.
        """
        return self._read(lambda db: operators(db, now))

    def unused(self, now: datetime) -> tuple[frozenset[str], bool]:
        """Serials of renewed certificates that nobody used yet, and whether an overlap is over.

        Raises:
            BusyError: Another process holds the file for long.
            ConfigError: The file cannot be read, or is another release's.
        """
        return self._read(lambda db: successions.unused(db, now))

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with told(self._path):
                return query(self._opened())
        except BaseException:
            self.close()
            raise

    def _opened(self) -> sqlite3.Connection:
        try:
            found = self._path.stat()
        except OSError as err:
            raise ConfigError(f"cannot open {self._path}: {err.strerror}; run as the user who owns it") from err
        if self._db is None or (found.st_dev, found.st_ino) != self._file:
            self.close()
            self._db = connect(self._path)
            self._file = found.st_dev, found.st_ino
            refuse_other_release(self._path, self._db)
        return self._db
