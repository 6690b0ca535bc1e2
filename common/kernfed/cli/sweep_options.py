"""Options of a sweep, for every command that runs one."""

from __future__ import annotations

from typing import Annotated

import typer

VALIDATION = 0.2
"""Usual share of a client's rows that settings are chosen on."""

ValidationOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=0.9,
        help=f"With --sweep: share of each client's rows that ranks combinations, usually {VALIDATION}; 0: the test "
        "rows do, and their scores are then too good where they choose.",
    ),
]
RepeatsOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=100, help="With --sweep: seeds for each combination, whose mean and standard error are told."
    ),
]


def sweep_numbers(validation: float | None, repeats: int | None) -> tuple[float, int]:
    """Share and seeds as they are where an option was not given."""
    return VALIDATION if validation is None else validation, repeats or 1
