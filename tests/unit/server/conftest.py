"""A store's database of either kind, for the tests of what is kept in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernfed_testing.machine import postgres


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    """A PostgreSQL server."""
    with postgres.cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/coordinator.sqlite"
    made: str = request.getfixturevalue("cluster").new_database()
    return made
