"""`kernfed-coordinator health`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import log_to_stderr
from kernfed.wire.health import STORE, check_health
from kernfed_server.config import load_coordinator_file, probe_address, usual_file


def health(
    config: Annotated[Path | None, typer.Option(help="Coordinator file, as for `run`.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Enrolment host:port to ask. Default: that of the coordinator file, on loopback.")
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask also whether its database and disk can be used: for readiness probes.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest wait in seconds.")] = 5,
) -> None:
    """Ask the coordinator on this machine whether it serves: exit status 0 if it does; for probes."""
    log_to_stderr()
    file = load_coordinator_file(config or usual_file())
    where = address or probe_address(file)
    for service in ("", STORE) if ready else ("",):
        asyncio.run(check_health(where, file.pki / "coordinator", service=service, timeout_s=timeout))
    typer.echo("ready" if ready else "serving")
