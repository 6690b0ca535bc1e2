"""`kernfed-coordinator init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption
from kernfed.cli.pki import make_federation
from kernfed.errors import ConfigError
from kernfed.pki.folder import CA
from kernfed.wire.channel import split_address
from kernfed_server.config import load_coordinator_file, usual_file


def init(
    federation: Annotated[str, typer.Option(help="Name of the federation: a-z, 0-9 and '-'.")],
    config: Annotated[Path | None, typer.Option(help="Coordinator file, as for `run`.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address that clients dial; repeat for more. The first goes into tokens."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port that clients dial. Default: that of `listen` in the file."),
    ] = None,
    enrol_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port that they dial for enrolment. Default: that of `enrolment_listen` in the file."
        ),
    ] = None,
    operator: Annotated[str | None, typer.Option(help="Name of the first operator. Default: your user name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new federation, once: its CA, and the identities of the coordinator and of one operator.

    `run` never makes one, so a volume that was lost or not mounted does not become a new federation. Nothing is changed
    where there is one, nor where the data folder holds anything: the CA that it belongs to was lost, and a new one
    would not fit.
    """
    file = load_coordinator_file(config or usual_file())
    if (file.pki / CA).exists():
        raise ConfigError(f"{file.pki} holds a federation already; nothing was changed: start it with `run`")
    if file.data.is_dir() and any(file.data.iterdir()):
        raise ConfigError(
            f"{file.data} is not empty, and {file.pki} holds no CA; nothing was changed: restore the CA of the "
            "federation that these data belong to, or move them away"
        )
    make_federation(
        file.pki,
        federation,
        hosts=host or (),
        port=port or split_address(file.listen)[1],
        enrol_port=enrol_port or split_address(file.enrolment_listen)[1],
        operator=operator,
        as_json=as_json,
    )
