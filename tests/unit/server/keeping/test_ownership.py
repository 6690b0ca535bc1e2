"""A coordinator takes up its own federation's books: lost ones and those of others are told apart from none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from kernfed.errors import ConfigError
from kernfed.pki.federation import FederationPki
from kernfed_server.app import Coordinator
from kernfed_server.commands.new_database import new_database
from kernfed_server.config import CoordinatorFile, open_pki
from kernfed_server.keeping.ownership import Owner
from kernfed_server.keeping.schema import make_engine
from kernfed_server.keeping.store import Store

OWNER = Owner("hearts", "ab" * 32, has_books=False)


async def opened_once(url: str, folder: Path, owner: Owner) -> None:
    """A life of a coordinator on a database."""
    await (await Store.open(url, folder, owner)).close()


async def test_the_books_of_another_federation_are_refused(url: str, tmp_path: Path) -> None:
    """Both are named; its own federation goes on, also where the registry had not noted the books yet."""
    await opened_once(url, tmp_path, OWNER)
    for other in (False, True, None):
        with pytest.raises(ConfigError, match=r"another federation \(hearts, CA abab.*this one is lungs, CA cdcd"):
            await opened_once(url, tmp_path, Owner("lungs", "cd" * 32, other))
    for own in (False, True, None):
        await opened_once(url, tmp_path, replace(OWNER, has_books=own))


async def test_books_of_an_earlier_release_get_their_name(url: str, tmp_path: Path) -> None:
    """A federation of before takes up its books, which name it from then on; a new one does not take them."""
    engine = make_engine(url)
    with engine.begin() as db:
        config = Config(attributes={"connection": db})
        config.set_main_option("script_location", "kernfed_server:migrations")
        command.upgrade(config, "0003")
    with pytest.raises(ConfigError, match="holds books already, and federation hearts is new"):
        await opened_once(url, tmp_path, OWNER)
    await opened_once(url, tmp_path, replace(OWNER, has_books=None))
    with engine.connect() as db:
        named = {row.key: row.value for row in db.execute(sa.text("SELECT key, value FROM about"))}
    assert named == {"federation": "hearts", "ca_sha256": "ab" * 32}
    engine.dispose()


async def test_a_lost_database_is_refused(url: str, tmp_path: Path) -> None:
    """Files of jobs beside a database without tables: the coordinator does not begin anew."""
    (tmp_path / "jobs" / "a-111111").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"the database is empty.*a-111111.*kernfed-coordinator new-database"):
        await opened_once(url, tmp_path, replace(OWNER, has_books=None))


async def test_a_federation_that_had_books_does_not_begin_anew(url: str, tmp_path: Path) -> None:
    """The whole data folder was lost, and the database with it: only an explicit word begins with no jobs."""
    FederationPki.init(tmp_path / "pki", "hearts", operator="ann")
    file = CoordinatorFile(pki=tmp_path / "pki", data=tmp_path / "data", database=url)
    owner = Owner.of(open_pki(file))
    assert owner.has_books is False
    open_pki(file).registry.books_begun()
    with pytest.raises(ConfigError, match=r"empty, and federation hearts has had.*kernfed-coordinator new-database"):
        await opened_once(url, tmp_path / "data", Owner.of(open_pki(file)))
    config = tmp_path / "coordinator.toml"
    config.write_text(f'database = "{url}"\n')
    new_database(config)
    await opened_once(url, tmp_path / "data", Owner.of(open_pki(file)))


def test_a_coordinator_without_a_ca_says_what_to_restore(tmp_path: Path) -> None:
    """It makes neither a CA nor a data folder."""
    with pytest.raises(ConfigError, match=r"pki holds no federation: mount or restore.*kernfed-coordinator init"):
        Coordinator(CoordinatorFile(pki=tmp_path / "pki", data=tmp_path / "data"))
    assert list(tmp_path.iterdir()) == []
