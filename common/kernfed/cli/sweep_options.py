"""Options of a sweep, for every command that runs one."""

from __future__ import annotations

from typing import Annotated

import typer

SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        help="KEY=VALUE,VALUE,... of the job file, e.g. ridge=0.01,0.1 or features.lengthscale=2,5; repeat for more "
        "keys: the job at every combination, ranked on validation rows, and the best on test rows. Beside the keys of "
        "the file's section sweep.",
    ),
]
ValidationOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=0.9,
        help="With --sweep: share of each client's rows that ranks combinations, usually 0.2; 0: the test rows do, and "
        "their scores are then too good where they choose.",
    ),
]
RepeatsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100,
        help="Seeds for each combination of --sweep, or for the job, whose mean and standard error are told.",
    ),
]
