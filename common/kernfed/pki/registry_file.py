"""The file of the CA's registry: its tables, how it is opened, and what its rows say."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from kernfed.errors import BusyError, ConfigError
from kernfed.pki.authority import certificate_pem, serial_of
from kernfed.pki.folder import parse_certificate, public_bytes
from kernfed.pki.names import Role, principal_of
from kernfed.pki.records import IssuedCertificate, OperatorCertificate, Revocation

VERSION = 1
_LOCK_WAIT_S = 10.0
RENEWED = "renewed"
"""The reason of a revocation that a renewal brought."""

SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE certificates (
    serial TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    not_before REAL NOT NULL,
    not_after REAL NOT NULL,
    issued_at REAL NOT NULL,
    via TEXT NOT NULL,
    pem BLOB NOT NULL
) STRICT;
CREATE INDEX certificates_by_name ON certificates (role, name);
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    secret_sha256 TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    used_at REAL,
    key_sha256 TEXT,
    serial TEXT,
    cancelled_at REAL
) STRICT;
CREATE TABLE revocations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    serial TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    revoked_at REAL NOT NULL,
    why TEXT NOT NULL
) STRICT;
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, which must be there."""
    try:
        # mode=rw: a registry that vanished is an error, not a new empty file.
        where = f"{path.absolute().as_uri()}?mode=rw"
        return sqlite3.connect(where, uri=True, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as err:
        raise ConfigError(f"cannot open {path}: {err}; run as the user who owns it") from err


def refuse_other_release(path: Path, db: sqlite3.Connection) -> None:
    """Refuse a file of another release."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise ConfigError(f"{path} has version {version}, this kernfed reads {VERSION}: update kernfed")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, which name the file and the remedy."""
    try:
        yield
    except sqlite3.OperationalError as err:
        if "locked" in str(err) or "busy" in str(err):
            raise BusyError(f"{path} is in use by another process for more than {_LOCK_WAIT_S:g} s") from err
        raise ConfigError(f"cannot use {path}: {err}; run as the user who owns it, on a writable disk") from err
    except sqlite3.DatabaseError as err:
        raise ConfigError(f"{path} is damaged ({err}): restore it from a backup") from err


def certificates(db: sqlite3.Connection) -> list[IssuedCertificate]:
    """All certificates, by role and name, the newest first."""
    rows = db.execute(
        """
        SELECT c.serial, c.role, c.name, not_before, not_after, issued_at, via, r.revoked_at, coalesce(r.why, '')
        FROM certificates c LEFT JOIN revocations r ON r.serial = c.serial
        ORDER BY c.role, c.name, c.issued_at DESC, c.rowid DESC
        """
    ).fetchall()
    return [
        IssuedCertificate(s, Role(role), name, at(nb), at(na), at(issued), via, maybe_at(revoked), why)
        for s, role, name, nb, na, issued, via, revoked, why in rows
    ]


def revocations(db: sqlite3.Connection, after: int) -> list[Revocation]:
    """Revocations with a number above `after`, in order."""
    rows = db.execute(
        "SELECT number, serial, role, name, revoked_at, why FROM revocations WHERE number > ? ORDER BY number", (after,)
    ).fetchall()
    return [Revocation(n, serial, Role(role), name, at(when), why) for n, serial, role, name, when, why in rows]


def operators(db: sqlite3.Connection, now: datetime) -> list[OperatorCertificate]:
    """All certificates of operators, those too that are over."""
    rows = db.execute(
        """
        SELECT c.serial, c.pem, c.not_after, r.revoked_at, coalesce(r.why, '')
        FROM certificates c LEFT JOIN revocations r ON r.serial = c.serial WHERE c.role = ?
        """,
        (str(Role.OPERATOR),),
    ).fetchall()
    return [
        OperatorCertificate(
            serial,
            hashlib.sha256(public_bytes(parse_certificate(pem, f"certificate {serial}"))).hexdigest(),
            live=revoked is None and now.timestamp() < not_after,
            revoked_at=None if why == RENEWED else maybe_at(revoked),
        )
        for serial, pem, not_after, revoked, why in rows
    ]


def insert(db: sqlite3.Connection, certificate: x509.Certificate, via: str, now: datetime) -> None:
    """Note a certificate that was issued."""
    principal = principal_of(certificate)
    db.execute(
        "INSERT INTO certificates VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            serial_of(certificate),
            str(principal.role),
            principal.name,
            certificate.not_valid_before_utc.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
            now.timestamp(),
            via,
            certificate_pem(certificate),
        ),
    )


def at(timestamp: float) -> datetime:
    """A time as the file has it."""
    return datetime.fromtimestamp(timestamp, UTC)


def maybe_at(timestamp: float | None) -> datetime | None:
    """The same, where there may be none."""
    return None if timestamp is None else at(timestamp)
