"""Which rows of streams jobs used together: each later job uses all of such rows, or none, whatever its limits are.

An answer to a round stands for the rows of the round. Two jobs that leave out other rows of one stream would tell about
the few by which their rounds differ. So the rows behind an answer are kept as *blocks*, and every job's rounds are made
of whole blocks: what sums of any jobs, added and subtracted, stand for is made of blocks then, of `policy.min_rows` or
more rows each. Rows are known by their marks (`data.guards.row_marks`), so other names of one file do not help, nor do
other positions.

They are kept in the client's state folder, of all its streams together. It is not synced with every round: a loss of
power may cost the blocks of the last seconds, as it costs the states of these rounds, which are then learned again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernfed.errors import PolicyError
from kernfed.files import of_sqlite

USED_ROWS = "used-rows.sqlite"
MOST_ROWS = 4_000_000
"""Rows that are kept, about 200 MB; beyond it the blocks that were made first are forgotten."""
_LOOK = 50_000
"""After so many more rows, and at the beginning, they are counted."""
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
_WAIT_S = 60.0
"""For another job's round, which takes milliseconds."""

Blocks = Mapping[int, Mapping[int, int]]
"""Number of a block to the marks of its rows, and how often each is there."""


class UsedRows:
    """The blocks of a client's streams; each job has one of these, and they share the file."""

    def __init__(self, state: Path) -> None:
        """Open or begin the file in the client's state folder.

        Raises:
            PolicyError: It is damaged.
            OSError: The disk is full, or gone.
        """
        self._path = state / USED_ROWS
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        self._database = sqlite3.connect(self._path, _WAIT_S, isolation_level=None, check_same_thread=False)
        self._closing = weakref.finalize(self, self._database.close)
        with self._told():
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS used (mark INTEGER, block INTEGER, num INTEGER, PRIMARY KEY (mark, block)) "
                "WITHOUT ROWID"
            )
            self._database.execute("CREATE INDEX IF NOT EXISTS by_block ON used (block)")
        self._before_look = 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else makes blocks until the end, where what was kept counts as a whole.

        Raises:
            PolicyError: The file is damaged.
            OSError: The disk is full, or gone; nothing was kept.
        """
        with self._told():
            self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            with self._told():
                self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def blocks(self, marks: Iterable[int]) -> Blocks:
        """All blocks that have a row of one of some marks."""
        found: dict[int, dict[int, int]] = {}
        with self._told():
            rows = self._database.execute(
                "SELECT block, mark, num FROM used WHERE block IN "
                "(SELECT block FROM used WHERE mark IN (SELECT value FROM json_each(?))) ORDER BY block",
                (json.dumps(sorted(set(marks))),),
            )
            for block, mark, num in rows:
                found.setdefault(block, {})[mark] = num
        return found

    def keep(self, blocks: Sequence[Sequence[int]], instead: Iterable[int]) -> None:
        """Keep blocks.

        Args:
            blocks: Marks of the rows of each.
            instead: Numbers of blocks that they are made of, beside other rows.
        """
        with self._told():
            self._database.executemany("DELETE FROM used WHERE block = ?", [(block,) for block in instead])
            [(last,)] = self._database.execute("SELECT coalesce(max(block), 0) FROM used")
            rows = [
                (mark, block, num)
                for block, marks in enumerate(blocks, last + 1)
                for mark, num in sorted(Counter(marks).items())
            ]
            self._database.executemany("INSERT INTO used VALUES (?, ?, ?)", rows)
            self._before_look -= len(rows)
            if self._before_look < 0:
                self._before_look = _LOOK
                self._forget_first()

    def _forget_first(self) -> None:
        [(num,)] = self._database.execute("SELECT count(*) FROM used")
        while num > MOST_ROWS:
            num -= self._database.execute("DELETE FROM used WHERE block = (SELECT min(block) FROM used)").rowcount

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as err:
            if err.sqlite_errorcode & 0xFF in _DAMAGED:
                raise PolicyError(
                    "the record of the rows of streams that jobs used is damaged, so that jobs on streams may tell "
                    f"about few rows; let this client's administrator put {self._path.name} of its state folder back, "
                    "or remove it: jobs before and after may then tell about few rows together"
                ) from err
            raise of_sqlite(err, self._path.name) from err
