"""Times below 0, which no row has that is followed from when it was first seen."""

from __future__ import annotations

from collections.abc import Iterable

from kernfed.wording import listed
from kernfed_server.jobs.run import Run


def note_early(clients: Iterable[str], run: Run) -> None:
    """Tell of clients that have such times."""
    if early := sorted(clients):
        run.note(
            f"{listed(early, more=', ...')}: some times are below 0; data.target is to be the time since the row was "
            "first seen"
        )
