"""`kernfed-client new-state`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.jobs.client_file import load_client_file
from kernfed_client.daemon.state_mark import StateMark


def new_state(
    config: Annotated[Path, typer.Option(help="Client file, as for `run`.")] = Path("client.toml"),
) -> None:
    """Take the state folder as it is, where it was lost: what this site told of its rows before is then not known.

    Its rows are dealt into blocks anew, so jobs of before and after may together tell about fewer rows than
    policy.min_rows. A daemon that runs goes on by itself.
    """
    file = load_client_file(config)
    if StateMark(file.identity, file.state).accept():
        typer.echo(f"{file.state} is the state folder from now on; jobs on data are answered again")
    else:
        typer.echo(f"{file.state} is the state folder of this client already; nothing was changed")
