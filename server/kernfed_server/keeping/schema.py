"""The store's database: opened by URL, its tables brought up to date, a newer release's refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine

from kernfed.errors import ConfigError, UnavailableError
from kernfed_server.keeping.tables import SCHEMA

log = structlog.get_logger(__name__)

_VERSION_TABLE: Final = "alembic_version"
_OLD_VERSION_TABLE: Final = "schema_version"
_WAIT_S: Final = 10
_STATEMENT_S: Final = 60
_LOCK_KEY: Final = 0x6B65726E66  # any number that no other program on the server uses
_LOCKS: Final = f"-c lock_timeout={_WAIT_S}s -c statement_timeout={_STATEMENT_S}s"


def make_engine(url: str) -> Engine:
    """Engine of a database; connects when it is used.

    Args:
        url: SQLAlchemy URL, e.g. `sqlite:////var/lib/kernfed/coordinator.sqlite` or
            `postgresql+psycopg://kernfed@db.example.org/kernfed`.

    Raises:
        ConfigError: The URL is none, of another kind of database, or its driver is not installed.
    """
    try:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite":
            engine = sa.create_engine(parsed, connect_args={"timeout": _WAIT_S})
            sa.event.listen(engine, "connect", _sqlite_pragmas)
        elif parsed.get_backend_name() == "postgresql":
            # Ping: a database server that was restarted is connected anew, without a failed job in between.
            # UTF-8, also where a database was made under the locale C: all text would come as bytes.
            arguments = {
                "connect_timeout": _WAIT_S,
                "options": _LOCKS,
                "application_name": "kernfed-coordinator",
                "client_encoding": "utf8",
            }
            engine = sa.create_engine(parsed, connect_args=arguments, pool_pre_ping=True)
            if "@" in (parsed.host or ""):
                raise ConfigError(
                    "database: its user or password holds an @, which a URL needs as %40; other signs likewise: / as "
                    "%2F, : as %3A, # as %23, ? as %3F, % as %25"
                )
        else:
            raise ConfigError(f"database: {parsed.get_backend_name()!r} is neither sqlite nor postgresql+psycopg")
    except ModuleNotFoundError as err:
        raise ConfigError(
            f"database: the driver {err.name!r} is not installed; `pip install kernfed[postgres]` brings psycopg for "
            "postgresql+psycopg://…"
        ) from err
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError) as err:
        raise ConfigError(f"database: not a database URL that can be used: {err}") from err
    return engine


def bring_up_to_date(engine: Engine) -> None:
    """Make or change the tables, all or nothing; nothing is done where they are as this release has them. Blocks.

    Raises:
        ConfigError: A newer release made them.
    """
    with engine.connect() as db:
        if _version(db) == SCHEMA:
            return  # the usual start, without loading Alembic
    with engine.begin() as db:
        # One coordinator at a time; and in SQLite, whose driver opens no transaction for DDL, all or nothing.
        if engine.dialect.name == "sqlite":
            db.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            db.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_KEY)))
        _upgrade(db)


def has_tables(db: Connection) -> bool:
    """Whether a coordinator of any release made tables in a database."""
    return _version(db) is not None or sa.inspect(db).has_table(_OLD_VERSION_TABLE)


def check_there(engine: Engine) -> None:
    """Check in passing that the tables are still there. Blocks.

    Raises:
        ConfigError: They are gone while the coordinator runs.
    """
    file = engine.url.database or ""
    lost = engine.dialect.name == "sqlite" and file not in ("", ":memory:") and not Path(file).exists()
    if not lost:
        with engine.connect() as db:
            lost = _version(db) is None
    if lost:
        raise ConfigError(
            "the tables of the database are gone: it was dropped, made anew or removed while the coordinator ran; "
            "restore it from its backup and start the coordinator again"
        )


def check_current(db: Connection) -> None:
    """Check that the tables are those of this release.

    Raises:
        ConfigError: They are not.
    """
    if (version := _version(db)) != SCHEMA:
        raise ConfigError(
            f"the store's tables are of version {version or 'none'}, this release has {SCHEMA}; start the coordinator "
            "of this release once, or run the release that made them"
        )


@contextlib.contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection to a store that is there already, which a coordinator may be using meanwhile. Blocks.

    Raises:
        ConfigError: There is none, or it is another release's.
        UnavailableError: The database cannot be used.
    """
    engine = make_engine(url)
    file = engine.url.database or ""
    try:
        if engine.dialect.name == "sqlite" and not Path(file).is_file():
            raise ConfigError(f"no store at {file}; give the coordinator's file with --config")
        with engine.connect() as db:
            check_current(db)
            yield db
    except sa.exc.SQLAlchemyError as err:
        raise UnavailableError(f"the coordinator's store cannot be used: {err}; check its disk and database") from err
    finally:
        engine.dispose()


def _version(db: Connection) -> str | None:
    if not sa.inspect(db).has_table(_VERSION_TABLE):
        return None
    return db.execute(sa.text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalar_one_or_none()  # noqa: S608  # nosec B608  # a constant


def _upgrade(db: Connection) -> None:
    from alembic import command  # noqa: PLC0415  # slow to load, for old stores
    from alembic.config import Config  # noqa: PLC0415  # slow to load, for old stores
    from alembic.script import ScriptDirectory  # noqa: PLC0415  # slow to load, for old stores

    config = Config(attributes={"connection": db})
    config.set_main_option("script_location", "kernfed_server:migrations")
    before = _version(db)
    if before == SCHEMA:
        return  # another one did it meanwhile
    if before is None and sa.inspect(db).has_table(_OLD_VERSION_TABLE):
        command.stamp(config, "0001")
        before = "0001"
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if before is not None and before not in known:
        raise ConfigError(
            f"the store was made by a newer release of kernfed (version {before} of its tables, this release knows up "
            f"to {SCHEMA}); run that release, or give the coordinator a new data folder"
        )
    command.upgrade(config, "head")
    if before is not None:
        log.info("store brought up to date", before=before, now=SCHEMA)


def _sqlite_pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    # FULL: a round that was closed is on disk even when the power fails a moment later.
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
