"""`kernfed-client check-data`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import print_rich
from kernfed.errors import KernfedError
from kernfed_client import check_data as checking


def check_data(
    job: Annotated[Path, typer.Argument(help="Job file.", metavar="JOB.toml")],
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    name: Annotated[str | None, typer.Option(help="This client's name; unset: from its identity.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether the local data fit a job, without any network; what is printed stays here."""
    try:
        report = checking.check_data(job, config, name)
    except KernfedError as err:
        if as_json:
            typer.echo(json.dumps({"error": {"reason": err.reason, "message": str(err)}}, indent=2))
        raise
    if as_json:
        typer.echo(json.dumps(checking.as_json(report), indent=2))
    else:
        print_rich(checking.as_table(report))
