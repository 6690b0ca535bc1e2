"""`kernfed-coordinator new-database`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import typer

from kernfed.errors import UnavailableError
from kernfed_server.config import database_url, load_coordinator_file, open_pki, usual_file
from kernfed_server.keeping.ownership import Owner
from kernfed_server.keeping.schema import bring_up_to_date, make_engine


def new_database(
    config: Annotated[Path | None, typer.Option(help="Coordinator file, as for `run`.")] = None,
) -> None:
    """Begin with no jobs although this federation had a database: it was lost for good.

    Makes the tables where they are not there. `run` refuses to, so that a volume that was not mounted, or a wrong URL,
    does not pass for a federation without jobs. Files of the former jobs stay; `gc` removes them.
    """
    file = load_coordinator_file(config or usual_file())
    owner = Owner.of(open_pki(file))
    file.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = make_engine(database_url(file))
    try:
        owner.refuse_others(engine)
        bring_up_to_date(engine)
        with engine.begin() as db:
            owner.sign(db)
    except sa.exc.SQLAlchemyError as err:
        raise UnavailableError(f"the database cannot be used: {err}; check its disk and server") from err
    finally:
        engine.dispose()
    typer.echo("the database has its tables; start the coordinator")
