"""A database that one coordinator holds while it runs: of two, each would write down the other's jobs as lost.

PostgreSQL: an advisory lock of a session of its own, which the server gives back when that session is gone. SQLite: a
file beside the database.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from kernfed.errors import ConfigError
from kernfed.process_lock import ProcessLock, this_process

_KEY: Final = 0x6B65726E67  # any number that no other program on the server uses
_KEEP_ALIVE: Final = ("tcp_keepalives_idle = 15", "tcp_keepalives_interval = 5", "tcp_keepalives_count = 3")
"""A machine that vanished gives its lock back within half a minute, not after the server's two hours."""

_PATIENCE_S: Final = 3.0

_HOLDERS: Final = sa.text(
    "SELECT a.application_name, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database"
    " WHERE datname = current_database()) AND (l.classid::bigint << 32 | l.objid::bigint) = :key"
)
_STOP_IT: Final = "stop that coordinator, or give this one another `database`"


def _taken(db: Connection) -> bool:
    """Try for a moment: the session of a coordinator that was killed just now ends a little later than it."""
    give_up = time.monotonic() + _PATIENCE_S
    while not db.execute(sa.select(sa.func.pg_try_advisory_lock(_KEY))).scalar_one():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.1)
    return True


class DatabaseLock:
    """Holds a database from `take` until `release`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: Connection | None = None
        self._file: ProcessLock | None = None

    def take(self) -> None:
        """Take the database, or find out whether it is still held, and take it again where the server was restarted.

        Raises:
            ConfigError: Another coordinator holds it; names it.
            sqlalchemy.exc.SQLAlchemyError: The database cannot be reached.
        """
        if self._engine.dialect.name == "sqlite":
            self._take_file()
        else:
            self._take_session()

    def release(self) -> None:
        """Let others have it; twice does no harm."""
        if self._session is not None:
            with contextlib.suppress(sa.exc.SQLAlchemyError):  # the server is gone, and the lock with it
                self._session.execute(sa.select(sa.func.pg_advisory_unlock(_KEY)))
            self._session.invalidate()
            self._session.close()
            self._session = None
        if self._file is not None:
            self._file.release()
            self._file = None

    def _take_file(self) -> None:
        name = self._engine.url.database
        if self._file is None and name and name != ":memory:":
            what = f"{name} is the database of a coordinator that runs"
            self._file = ProcessLock(Path(f"{name}.lock"), what=what, remedy=_STOP_IT)

    def _take_session(self) -> None:
        if self._session is not None:
            try:
                self._session.execute(sa.text("SELECT 1"))
                return
            except sa.exc.SQLAlchemyError:
                self._session.invalidate()
                self._session.close()
                self._session = None
        db = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            for setting in (*_KEEP_ALIVE, f"application_name = '{this_process()[:63]}'"):
                db.execute(sa.text(f"SET {setting}"))
            if not _taken(db):
                holders = db.execute(_HOLDERS, {"key": _KEY}).all()
                named = ", ".join(f"{row.application_name} (session {row.pid} of the server)" for row in holders)
                raise ConfigError(
                    f"database: another coordinator uses it: {named or 'it ended just now, start again'}; {_STOP_IT}. "
                    "A machine that vanished gives it back within a minute"
                )
        except BaseException:
            db.invalidate()  # its settings must not go back to the pool
            db.close()
            raise
        self._session = db
