"""A simulated job as it goes: lines on stderr."""

from __future__ import annotations

import time

from kernfed.cli.job_text import metrics_text
from kernfed.cli.output import print_note
from kernfed.cli.watching import QUIET_ROUNDS_S
from kernfed.federation.events import EventKind, JobEvent


class Progress:
    """One line per round on stderr; of rounds without metrics one at most each second."""

    def __init__(self, *, quiet: bool) -> None:
        """Begin; `quiet`: tell nothing."""
        self._quiet = quiet
        self._printed = 0.0

    def __call__(self, event: JobEvent) -> None:
        """Tell of an event."""
        if self._quiet:
            return
        if event.kind is EventKind.NOTE:
            print_note(event.message)
        elif event.kind is EventKind.CLIENT_FAILED:
            print_note(f"round {event.round_num}: {event.client} failed {event.step}: {event.text}")
        elif event.kind is EventKind.ROUND_CLOSED and event.metrics is not None:
            if not event.metrics.pooled and time.monotonic() - self._printed < QUIET_ROUNDS_S:
                return
            self._printed = time.monotonic()
            print_note(f"round {event.round_num}: {metrics_text(event.metrics) or 'closed'}")
