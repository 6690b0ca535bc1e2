"""`kernfed-client check-data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, log_to_stderr, print_found
from kernfed_client import check_data as checking


def check_data(
    job: Annotated[Path, typer.Argument(help="Job file.", metavar="JOB.toml")],
    config: Annotated[Path, typer.Option(help="Client file.")] = Path("client.toml"),
    name: Annotated[str | None, typer.Option(help="This client's name; unset: from its identity.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether the local data fit a job, without any network; what is printed stays here."""
    log_to_stderr()
    print_found(lambda: checking.check_data(job, config, name), checking.as_json, checking.as_table, as_json=as_json)
