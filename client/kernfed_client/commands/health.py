"""`kernfed-client health`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.jobs.client_file import load_client_file
from kernfed_client.daemon.health import check_health


def health(
    config: Annotated[Path, typer.Option(help="Client file, as for `run`.")] = Path("client.toml"),
) -> None:
    """Say whether the daemon on this machine runs and has a session: exit status 0 if so; for probes."""
    typer.echo(check_health(load_client_file(config).state))
