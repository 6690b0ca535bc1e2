"""`kernfed report`: write a job's report again, from its other artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.report.page import write_report


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with job.json and metrics.jsonl.")],
) -> None:
    """Write report.html again from the artifacts in a folder."""
    typer.echo(str(write_report(folder)))
