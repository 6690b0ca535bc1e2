"""`kernfed-coordinator actions`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, print_json, print_table
from kernfed_server.config import database_url, load_coordinator_file, usual_file
from kernfed_server.keeping.actions import last_actions


def actions(
    config: Annotated[Path | None, typer.Option(help="Coordinator file, as for `run`.")] = None,
    job: Annotated[str, typer.Option(help="Only this job: its id, or the beginning of it.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the last ones.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Say what operators did: who submitted and cancelled which job, and when."""
    file = load_coordinator_file(config or usual_file())
    actions = last_actions(database_url(file), limit, job)
    if as_json:
        print_json([dataclasses.asdict(action) for action in actions])
    else:
        print_table(["time", "operator", "action", "job"], [(a.time, a.operator, a.action, a.job_id) for a in actions])
