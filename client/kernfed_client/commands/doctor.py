"""`kernfed-client doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption


def doctor(
    identity: Annotated[Path, typer.Option(help="Identity folder.", envvar="KERNFED_IDENTITY")] = Path("identity"),
    address: Annotated[
        str | None, typer.Option(help="Coordinator's host:port. Default: the one in the identity folder.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Client file: also tell what its daemon noticed about the line.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell this machine's platform, and check the way to the coordinator: identity, DNS, TCP, TLS, mutual TLS, role."""
    from kernfed.cli import diagnosis  # noqa: PLC0415  # loads grpc and numpy, which help does without
    from kernfed.jobs.client_file import load_client_file  # noqa: PLC0415  # as above
    from kernfed_client.daemon.health import noticed_line  # noqa: PLC0415  # as above

    line = noticed_line(load_client_file(config).state) if config is not None else ""
    diagnosis.run(identity, address, as_json=as_json, line=line)
