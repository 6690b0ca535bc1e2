"""`kernfed-client doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption


def doctor(
    identity: Annotated[
        Path | None,
        typer.Option(
            help="Identity folder. Default: the one that the client file names, else ./identity.",
            envvar="KERNFED_IDENTITY",
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Coordinator's host:port. Default: the client file's, else the identity's.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Client file: take identity and coordinator from it, and tell what its daemon noticed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell this machine's platform, and check the way to the coordinator: identity, DNS, TCP, TLS, mutual TLS, role."""
    from kernfed.cli import diagnosis  # noqa: PLC0415  # loads grpc and numpy, which help does without
    from kernfed.jobs.client_file import load_client_file  # noqa: PLC0415  # as above
    from kernfed.wire import proxy  # noqa: PLC0415  # as above
    from kernfed_client.daemon.health import noticed_line  # noqa: PLC0415  # as above
    from kernfed_client.daemon.state_mark import StateMark  # noqa: PLC0415  # as above

    file = load_client_file(config) if config is not None else None
    if file is None:
        diagnosis.run(identity or Path("identity"), address, as_json=as_json)
    else:
        proxy.use(file.network.to_proxy())
        line = "; ".join(filter(None, (StateMark(file.identity, file.state).lost, noticed_line(file.state))))
        diagnosis.run(identity or file.identity, address or file.coordinator, as_json=as_json, line=line)
