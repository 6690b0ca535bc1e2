"""Whose books a database holds: a coordinator takes up those of its own federation, and no others.

The CA's registry notes that a federation has begun its books, and the books name the CA. So a volume or a database that
was lost, emptied or mistaken for another is told from a new federation, in whichever of both places it happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from kernfed.errors import ConfigError
from kernfed.pki.authority import fingerprint
from kernfed.pki.federation import FederationPki
from kernfed_server.keeping import tables as t
from kernfed_server.keeping.schema import has_tables

_NAME: Final = "federation"
_CA: Final = "ca_sha256"
_ANOTHER: Final = "name this one's own with `database`, or restore the CA that they belong to"


@dataclass(frozen=True, slots=True)
class Owner:
    """A federation, as its books name it."""

    federation: str
    ca_sha256: str
    """Fingerprint of its CA's certificate."""

    has_books: bool | None
    """Whether it has begun its books; None: a release that did not note it made the federation."""

    @classmethod
    def of(cls, pki: FederationPki) -> Owner:
        """The federation of a PKI folder."""
        return cls(pki.federation, fingerprint(pki.authority.certificate), pki.registry.has_books())

    def refuse_lost(self, engine: Engine, folder: Path) -> None:
        """Refuse a database without tables where the federation, or a file in its data folder, says that it had some.

        Raises:
            ConfigError: It was lost, or is another one; says how to begin anew all the same.
        """
        places = [folder / name for name in ("jobs", "checkpoints")]
        left = [path for place in places if place.is_dir() for path in place.iterdir()]
        if not left and not self.has_books:
            return
        with engine.connect() as db:
            if has_tables(db):
                return
        why = (
            f"{folder} holds files of jobs ({left[0].name} is one)"
            if left
            else f"federation {self.federation} has had jobs or could have had some"
        )
        raise ConfigError(
            f"the database is empty, and {why}: the database was lost, or is another one; mount or restore the volume "
            "or the backup that holds it, or name the right one with `database`. To begin with no jobs all the same, "
            "run `kernfed-coordinator new-database` once"
        )

    def refuse_others(self, engine: Engine) -> None:
        """Refuse the books of another federation, before anything in them changes.

        Raises:
            ConfigError: They are another's.
        """
        with engine.connect() as db:
            if not has_tables(db):
                return
            named = _named(db)
        if named.get(_CA, self.ca_sha256) != self.ca_sha256:
            raise ConfigError(
                f"the database holds the books of another federation ({named.get(_NAME)}, CA {named[_CA][:16]}; this "
                f"one is {self.federation}, CA {self.ca_sha256[:16]}); {_ANOTHER}"
            )
        if not named and self.has_books is False:
            raise ConfigError(f"the database holds books already, and federation {self.federation} is new; {_ANOTHER}")

    def sign(self, db: Connection) -> None:
        """Write into books that name nobody whose they are."""
        if not _named(db):
            values = {_NAME: self.federation, _CA: self.ca_sha256}
            db.execute(t.about.insert(), [{"key": key, "value": value} for key, value in values.items()])


def _named(db: Connection) -> dict[str, str]:
    if not sa.inspect(db).has_table(t.about.name):
        return {}
    return {row.key: row.value for row in db.execute(sa.select(t.about))}
