"""Renewed certificates, and when those before them end: a table of the registry, in its transactions.

A renewal does not end the certificate that it replaces, for its answer may get lost, and a client without either would
be locked out. The old one ends `OVERLAP` after the new one was first used. From that use on it cannot be renewed again,
so a certificate that was stolen before ends with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime, timedelta

from kernfed.errors import BusyError, RevokedError
from kernfed.pki.names import Principal
from kernfed.pki.registry_file import at
from kernfed.wording import moment

OVERLAP = timedelta(hours=24)
MAX_RENEWALS = 30
"""Of one name within a day. One is due in two months; a client whose answers get lost asks once in an hour."""

_TABLE = """
CREATE TABLE IF NOT EXISTS successions (
    successor TEXT PRIMARY KEY,
    serial TEXT NOT NULL,
    ends_at REAL
) STRICT
"""
"""`ends_at`: when `serial` ends; NULL until `successor` is used. Made when needed: registries of before lack it."""


def note(db: sqlite3.Connection, serial: str, successor: str) -> None:
    """A certificate was renewed."""
    db.execute(_TABLE)
    db.execute("INSERT INTO successions VALUES (?, ?, NULL)", (successor, serial))


def refuse_second(db: sqlite3.Connection, serial: str) -> None:
    """Refuse to renew a certificate whose successor is in use.

    Raises:
        RevokedError: It is so; says what to do where somebody else uses it.
    """
    db.execute(_TABLE)
    found = db.execute("SELECT min(ends_at) FROM successions WHERE serial = ?", (serial,)).fetchone()[0]
    if found is not None:
        since = at(found) - OVERLAP
        raise RevokedError(
            f"this certificate was renewed, and the new one is in use since {moment(since)}: use that one. If you do "
            "not have it, somebody else may: tell the operator, who revokes this name and makes a new token"
        )


def refuse_many(db: sqlite3.Connection, who: Principal, now: datetime) -> None:
    """Refuse a name that was renewed too often of late.

    Raises:
        BusyError: It is so.
    """
    since = (now - timedelta(days=1)).timestamp()
    query = "SELECT count(*) FROM certificates WHERE role = ? AND name = ? AND via = 'renewal' AND issued_at > ?"
    if db.execute(query, (str(who.role), who.name, since)).fetchone()[0] >= MAX_RENEWALS:
        raise BusyError(f"{who} was renewed {MAX_RENEWALS} times within a day: wait a day, and find out who renews it")


def unused(db: sqlite3.Connection, now: datetime) -> tuple[frozenset[str], bool]:
    """Successors that nobody used yet, and whether there is work for `over`."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'successions'").fetchone():
        return frozenset(), False
    rows = db.execute("SELECT successor, ends_at FROM successions").fetchall()
    return (
        frozenset(successor for successor, ends_at in rows if ends_at is None),
        any(ends_at is not None and ends_at <= now.timestamp() for _, ends_at in rows),
    )


def over(db: sqlite3.Connection, used: Iterable[str], now: datetime) -> list[str]:
    """Begin the overlaps of successors that are in use; serials of those that are to end now, which are forgotten."""
    db.execute(_TABLE)
    ends_at = (now + OVERLAP).timestamp()
    db.executemany(
        "UPDATE successions SET ends_at = ? WHERE successor = ? AND ends_at IS NULL",
        [(ends_at, serial) for serial in used],
    )
    ended = [old for (old,) in db.execute("SELECT serial FROM successions WHERE ends_at <= ?", (now.timestamp(),))]
    db.execute("DELETE FROM successions WHERE ends_at <= ?", (now.timestamp(),))
    expired = "SELECT serial FROM certificates WHERE not_after <= ?"
    db.execute(f"DELETE FROM successions WHERE serial IN ({expired})", (now.timestamp(),))  # noqa: S608  # nosec B608  # our own text
    return ended
