"""A job's own results at a terminal, in `kernfed job show` and in a simulation."""

from __future__ import annotations

import typer

from kernfed.cli.output import print_table
from kernfed.report.parts import Overview
from kernfed.wording import clean


def print_overview(overview: Overview) -> None:
    """Print a part of a finding as a table, with a blank line before it."""
    typer.echo("")
    rows = [[clean(cell) for cell in row] for row in overview.table.rows]
    print_table(list(overview.table.columns), rows, title=overview.title)
