"""`kernfed-client run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed import logs, service
from kernfed.jobs.client_file import load_client_file
from kernfed.wire import proxy
from kernfed_client.app import serve


def run(
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="auto, text or json.")] = "auto",
) -> None:
    """Connect to the coordinator and work for it until stopped; reconnects by itself."""
    logs.configure(log_level, log_format)
    file = load_client_file(config)
    proxy.use(file.network.to_proxy())
    service.run(serve(file))
