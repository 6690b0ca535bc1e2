"""`kernfed-coordinator gc`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, print_json, print_table
from kernfed_server.config import database_url, load_coordinator_file, usual_file
from kernfed_server.keeping import garbage


def gc(
    config: Annotated[Path | None, typer.Option(help="Coordinator file, as for `run`.")] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="DAYS", help="Also artifacts and round history of jobs that have been over for so many days."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what nothing refers to from the data folder; the coordinator may run meanwhile."""
    file = load_coordinator_file(config or usual_file())
    url = database_url(file)
    found = garbage.find_garbage(url, file.data, older_than_days=older_than)
    events = [] if older_than is None else garbage.find_old_events(url, older_than_days=older_than)
    if not dry_run:
        garbage.remove(found)
        if older_than is not None:
            garbage.remove_old_events(url, older_than_days=older_than)
    total = sum(item.num_bytes for item in found)
    if as_json:
        items = [{"path": str(g.path), "what": g.what, "why": g.why, "bytes": g.num_bytes} for g in found]
        rows = [{"job_id": old.job_id, "num_events": old.num_events} for old in events]
        print_json({"removed": not dry_run, "bytes": total, "items": items, "events": rows})
        return
    if found:
        print_table(
            ["path", "what", "why", "MB"],
            [(g.path.relative_to(file.data), g.what, g.why, f"{g.num_bytes / 1e6:.2f}") for g in found],
        )
    num_events = sum(old.num_events for old in events)
    history = f"; {num_events} events of {len(events)} jobs" if events else ""
    typer.echo(f"{len(found)} {'would go' if dry_run else 'removed'}, {total / 1e6:.2f} MB{history}")
