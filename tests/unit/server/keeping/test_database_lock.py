"""One coordinator uses a database at a time, whichever folder it keeps its files in."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
import sqlalchemy as sa

from kernfed.errors import ConfigError, UnavailableError
from kernfed.jobs.info import ClientInfo
from kernfed_server.keeping import database_lock
from kernfed_server.keeping.database_lock import DatabaseLock
from kernfed_server.keeping.schema import make_engine
from kernfed_server.keeping.store import Store
from kernfed_testing.books import OWNER
from kernfed_testing.machine import postgres


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here lets go of a database that another waits for."""
    monkeypatch.setattr(database_lock, "_PATIENCE_S", 0.1)


async def test_a_second_store_is_refused(tmp_path: Path, url: str) -> None:
    """The error names the process that holds the database; once that store is closed there is room."""
    first = await Store.open(url, tmp_path / "one", OWNER)
    with pytest.raises(ConfigError, match=rf"process {os.getpid()} on .*another `database`"):
        await Store.open(url, tmp_path / "two", OWNER)
    await first.close()
    await (await Store.open(url, tmp_path / "two", OWNER)).close()


def test_a_restarted_server_is_held_again(cluster: postgres.Cluster) -> None:
    """A lock that went with the server is taken again, unless another coordinator was quicker."""
    url = cluster.new_database()
    engines = [make_engine(url) for _ in range(2)]
    first, second = map(DatabaseLock, engines)
    first.take()
    cluster.stop("immediate")
    with pytest.raises(sa.exc.SQLAlchemyError):
        first.take()
    cluster.start()
    first.take()
    with pytest.raises(ConfigError, match="another coordinator uses it"):
        second.take()
    cluster.stop("immediate")
    cluster.start()
    second.take()
    with pytest.raises(ConfigError, match="another coordinator uses it"):
        first.take()
    for held, engine in zip((first, second), engines, strict=True):
        held.release()
        engine.dispose()


@pytest.mark.slow
async def test_a_store_goes_on_at_the_server_that_took_over(tmp_path: Path, cluster: postgres.Cluster) -> None:
    """What was written before is there, and what comes is written."""
    url = cluster.new_database()
    store = await Store.open(url, tmp_path / "one", OWNER)
    await store.save_clients([ClientInfo("a", device="cpu")])
    await asyncio.to_thread(cluster.fail_over)
    with contextlib.suppress(UnavailableError):  # the broken line, which nobody has looked at yet
        await store.clients()
    await store.save_clients([ClientInfo("b")])
    assert set(await store.clients()) == {"a", "b"}
    await store.close()
