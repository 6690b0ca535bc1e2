"""`kernfed-client audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, print_found
from kernfed_client.daemon import audit_report


def audit(
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    check_chain: Annotated[
        bool,
        typer.Option(
            "--verify", help="Check that no line of any file was changed or removed; exit status 3 if one was."
        ),
    ] = False,
    job: Annotated[str | None, typer.Option(help="Only this job: its id, or the beginning of it.")] = None,
    archive: Annotated[
        list[Path] | None, typer.Option(help="Folder that older files of the log were moved to; repeat for more.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what left this site, by job and kind of information, in bytes and numbers; needs no network."""
    print_found(
        lambda: audit_report.audit(config, check_chain=check_chain, job=job, archives=archive or ()),
        audit_report.as_json,
        audit_report.as_table,
        as_json=as_json,
    )
