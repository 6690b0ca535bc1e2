"""`kernfed-coordinator run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed import logs, service
from kernfed_server.app import serve
from kernfed_server.config import load_coordinator_file, usual_file
from kernfed_server.trust.tls_log import handshake_failures_logged


def run(
    config: Annotated[
        Path | None, typer.Option(help="Coordinator file; unset: coordinator.toml here, or all defaults.")
    ] = None,
    port_file: Annotated[Path | None, typer.Option(help="Write both ports into this file once they answer.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="auto, text or json.")] = "auto",
) -> None:
    """Serve clients and operators until stopped; jobs under way go on at the next start."""
    file = load_coordinator_file(config or usual_file())
    with handshake_failures_logged():
        logs.configure(log_level, log_format)
        service.run(serve(file, port_file))
