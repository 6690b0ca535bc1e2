"""Of whom each sum was that this site helped to unmask: it helps once, and never for another set of the same sum.

Two sums of the same numbers that differ by one client tell that client's. So a site keeps, for each job and each thing
that was summed, whose terms it helped to add, with their weights; on the disk before its help leaves. Jobs that are
over count too, for their ids may be named again. So nothing is ever forgotten here, and what has an end is the file:
when it is full, the site helps with no new sum.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernfed.errors import PolicyError
from kernfed.files import of_sqlite

ONCE = "sums-once.sqlite"
MOST_BYTES = 64 << 20
"""Size at which the file takes no new sum: about half a million of them, of which a job of `dkrr` has a few."""
_WAIT_S = 60.0


class Once:
    """The sums that this site helped to unmask, in its state folder."""

    def __init__(self, state: Path) -> None:
        """Take the file in a state folder; it is made when there is something to keep."""
        self._path = state / ONCE

    def keep(self, job: str, what: bytes, included: bytes) -> None:
        """Keep whose terms a sum is of, or see that it is the same as before; on the disk when this returns.

        Args:
            job: Id of the job.
            what: Digest of what is summed.
            included: Digest of whose terms, with their weights.

        Raises:
            PolicyError: The same was summed over others before, the file is damaged, or it is full.
            OSError: The disk is full, or gone.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        with self._open() as database:
            database.execute("PRAGMA synchronous = FULL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS told (job TEXT, what BLOB, included BLOB, PRIMARY KEY (job, what)) "
                "WITHOUT ROWID"
            )
            kept = self._kept(database, job, what)
            if kept is None:
                self._has_room(database)
                database.execute("INSERT OR IGNORE INTO told VALUES (?, ?, ?)", (job, what, included))
                kept = self._kept(database, job, what)
        if kept != included:
            raise PolicyError(
                "this client helped to unmask the same sum over other clients, or with other weights, before; two such "
                "sums would tell single clients' numbers, so it helps with one alone. Submit the job again"
            )

    @staticmethod
    def _kept(database: sqlite3.Connection, job: str, what: bytes) -> bytes | None:
        """Of whom a sum was; None: it is new."""
        row = database.execute("SELECT included FROM told WHERE job = ? AND what = ?", (job, what)).fetchone()
        kept: bytes | None = None if row is None else row[0]
        return kept

    def _has_room(self, database: sqlite3.Connection) -> None:
        [(pages,)], [(page,)] = database.execute("PRAGMA page_count"), database.execute("PRAGMA page_size")
        if pages * page >= MOST_BYTES:
            raise PolicyError(
                f"{self._path} holds the sums that this client helped to unmask, and is full ({MOST_BYTES >> 20} MiB); "
                "find out who asks for so many, and move it away if you accept that the sums in it may be asked for "
                "again over other clients",
                public="this client keeps no more secure sums that it helped to unmask; ask its administrator",
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, _WAIT_S, isolation_level=None)
        try:
            yield database
        except sqlite3.OperationalError as err:
            raise of_sqlite(err, str(self._path)) from err
        except sqlite3.DatabaseError as err:
            raise PolicyError(
                f"{self._path} is damaged, so it is not known which sums this client helped to unmask; restore it, or "
                "move it away if you accept that",
                public="this client does not know which sums it helped to unmask; ask its administrator",
            ) from err
        finally:
            database.close()
