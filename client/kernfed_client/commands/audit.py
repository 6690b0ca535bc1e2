"""`kernfed-client audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import print_rich
from kernfed.errors import KernfedError
from kernfed_client.daemon import audit_report


def audit(
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    check_chain: Annotated[
        bool, typer.Option("--verify", help="Check that no line was changed or removed; exit status 3 if one was.")
    ] = False,
    job: Annotated[str | None, typer.Option(help="Only this job: its id, or the beginning of it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what left this site, by job and kind of information, in bytes and numbers; needs no network."""
    try:
        report = audit_report.audit(config, check_chain=check_chain, job=job)
    except KernfedError as err:
        if as_json:
            typer.echo(json.dumps({"error": {"reason": err.reason, "message": str(err)}}, indent=2))
        raise
    if as_json:
        typer.echo(json.dumps(audit_report.as_json(report), indent=2))
    else:
        print_rich(audit_report.as_table(report))
