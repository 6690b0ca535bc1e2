"""The store's tables through the releases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from kernfed.errors import ConfigError
from kernfed_server.keeping.schema import bring_up_to_date, check_current, make_engine
from kernfed_server.keeping.tables import SCHEMA, metadata
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.machine import postgres


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    made = make_engine(url)
    yield made
    made.dispose()


def migrate(db: sa.Connection, target: str) -> None:
    config = Config(attributes={"connection": db})
    config.set_main_option("script_location", "kernfed_server:migrations")
    command.upgrade(config, target)


def differences(engine: sa.Engine) -> list[Any]:
    with engine.connect() as db:
        found: list[Any] = compare_metadata(MigrationContext.configure(db), metadata)
        return found


@pytest.mark.slow
def test_the_migrations_make_the_tables_that_the_code_uses(engine: sa.Engine) -> None:
    """Alembic itself finds no difference, and the newest migration is the one that the code names."""
    bring_up_to_date(engine)
    assert differences(engine) == []
    with engine.connect() as db:
        check_current(db)
    config = Config()
    config.set_main_option("script_location", "kernfed_server:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [SCHEMA]


def test_an_old_store_is_brought_up_to_date_with_its_jobs(engine: sa.Engine) -> None:
    """Tables of the first release, made before Alembic was used, keep what is in them."""
    with engine.begin() as db:
        migrate(db, "0001")
        db.execute(sa.text("DROP TABLE alembic_version"))
        db.execute(sa.text("CREATE TABLE schema_version (version INTEGER PRIMARY KEY)"))
        db.execute(sa.text("INSERT INTO schema_version VALUES (1)"))
        db.execute(
            sa.text(
                "INSERT INTO jobs (job_id, name, method, state, submitted_by, submitted_at, round_num, num_rounds, "
                "clients, error_reason, error_message, job_toml) "
                "VALUES ('a-1', 'a', 'newton', 'succeeded', 'ann', 1.5, 3, 3, '[]', '', '', '')"
            )
        )
    bring_up_to_date(engine)
    bring_up_to_date(engine)
    assert differences(engine) == []
    with engine.connect() as db:
        assert db.execute(sa.text("SELECT job_id, submitted_at FROM jobs")).all() == [("a-1", 1.5)]


def test_failures_of_before_get_their_reason(engine: sa.Engine) -> None:
    """Texts "REASON: message" of clients' failures are split once; other events' texts stay whole."""
    kept = {
        1: ("client-failed", "INVALID_DATA: a.csv: row 3"),
        2: ("client-failed", "words alone"),
        3: ("client-missing", "no answer: late"),
        4: ("note", "NOTE: stays"),
    }
    with engine.begin() as db:
        migrate(db, "0002")
        db.execute(
            sa.text(
                "INSERT INTO jobs (job_id, name, method, state, submitted_by, submitted_at, round_num, num_rounds, "
                "clients, error_reason, error_message, job_toml) "
                "VALUES ('a-1', 'a', 'newton', 'succeeded', 'ann', 1.5, 3, 3, '[]', '', '', '')"
            )
        )
        for sequence, (kind, message) in kept.items():
            db.execute(
                sa.text(
                    "INSERT INTO events (job_id, sequence, time, kind, round_num, step, client, message) "
                    "VALUES ('a-1', :sequence, 1.5, :kind, 1, 's', 'c', :message)"
                ),
                {"sequence": sequence, "kind": kind, "message": message},
            )
    bring_up_to_date(engine)
    with engine.connect() as db:
        found = db.execute(sa.text("SELECT reason, message FROM events ORDER BY sequence")).all()
    assert found == [("INVALID_DATA", "a.csv: row 3"), *(("", kept[i][1]) for i in (2, 3, 4))]


def test_a_store_of_a_newer_release_is_refused(engine: sa.Engine) -> None:
    """Nothing is guessed about tables that another release made, and nothing in them changes."""
    bring_up_to_date(engine)
    with engine.begin() as db:
        db.execute(sa.text("UPDATE alembic_version SET version_num = '0999'"))
    with pytest.raises(ConfigError, match=r"newer release of kernfed \(version 0999.*up to " + SCHEMA):
        bring_up_to_date(engine)
    with engine.connect() as db, pytest.raises(ConfigError, match="0999"):
        check_current(db)


def test_a_migration_that_breaks_leaves_the_store_as_it_was(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All or nothing, in SQLite too, whose driver would commit each table."""
    with engine.begin() as db:
        migrate(db, "0001")
    before = set(sa.inspect(engine).get_table_names())
    broken = ScriptDirectory.from_config

    def from_config(config: Config) -> ScriptDirectory:
        found = broken(config)
        module = found.get_revision(SCHEMA).module
        upgrade = module.upgrade

        def fails() -> None:
            upgrade()
            raise RuntimeError("the power fails")

        monkeypatch.setattr(module, "upgrade", fails)
        return found

    monkeypatch.setattr(ScriptDirectory, "from_config", staticmethod(from_config))
    with pytest.raises(RuntimeError, match="power"):
        bring_up_to_date(engine)
    monkeypatch.undo()
    assert set(sa.inspect(engine).get_table_names()) == before
    bring_up_to_date(engine)
    assert differences(engine) == []


def test_two_that_start_at_once_migrate_once(engine: sa.Engine) -> None:
    """The second waits for the first and finds the work done."""
    faults = []

    def start() -> None:
        try:
            bring_up_to_date(engine)
        except Exception as err:
            faults.append(err)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert faults == []
    assert differences(engine) == []


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite+nothing:///x"])
def test_a_url_that_cannot_be_used(url: str) -> None:
    """The message names the key and the cause."""
    with pytest.raises(ConfigError, match="database: "):
        make_engine(url)


def test_a_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"kernfed\[postgres\]"):
        make_engine("postgresql+psycopg://x/y")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_used(cluster: postgres.Cluster, encoding: str) -> None:
    """What `initdb` makes under the locale C has the encoding SQL_ASCII; text goes in and comes out as it was."""
    engine = make_engine(cluster.new_database("-E", encoding, "-T", "template0"))
    try:
        with engine.begin() as db:
            migrate(db, SCHEMA)
            assert db.execute(sa.text("SELECT CAST(:text AS TEXT)"), {"text": "Zürich"}).scalar_one() == "Zürich"
        with engine.connect() as db:
            check_current(db)
    finally:
        engine.dispose()
