"""Clients whose stream cannot be read, e.g. for a file without the job's columns: waited for like absent ones.

A faulty file at one site must not end a job that has learned for weeks, for it can be corrected. So where such clients
lack for the quorum the job waits for them as long as for clients that are absent; where they do not, it goes on without
them. Either way they are asked again, also while nobody else has rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from kernfed.errors import DataError, QuorumNotMetError
from kernfed.federation.cohort import Cohort
from kernfed_server.jobs.run import Run

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0

T = TypeVar("T")


class FaultyData:
    """Asks clients again whose data were faulty."""

    def __init__(self, cohort: Cohort, run: Run) -> None:
        """Begin with short pauses; each that follows is twice as long, up to half a minute."""
        self._cohort = cohort
        self._run = run
        self._pause_s = _FIRST_PAUSE_S
        self._again: dict[str, tuple[float, float]] = {}
        """Clients that are out of the round: when they are asked again, and the pause after that."""

    def look(self) -> None:
        """Let those be asked again in this round whose pause is over. Mostly costs nothing."""
        faulty = {client for client, fault in self._cohort.faults.items() if fault.reason == DataError.reason}
        now = time.monotonic()
        for client in faulty:
            due, pause_s = self._again.setdefault(client, (now + self._pause_s, self._pause_s))
            if now >= due:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                self._again[client] = now + pause_s, pause_s
                self._cohort.forgive(client)

    async def waited(self, ask: Callable[[], Awaitable[Mapping[str, T]]]) -> Mapping[str, T]:
        """Ask until the quorum is met, for as long as a job waits for absent clients.

        Args:
            ask: Asks clients; called again after a pause. Those that answered give the answer that they keep.

        Raises:
            QuorumNotMetError: Data of too few clients can be read for too long, or too few answered for other reasons.
        """
        pause_s, give_up = self._pause_s, time.monotonic() + self._cohort.patience_s
        waits = False
        while True:
            try:
                replies = await ask()
            except QuorumNotMetError as err:
                faulty = sorted(client for client, reason in err.faults.items() if reason == DataError.reason)
                if not faulty or time.monotonic() + pause_s > give_up:
                    raise
                if not waits:
                    self._run.note(
                        f"the stream of {', '.join(faulty)} cannot be read; the job waits up to "
                        f"{self._cohort.patience_s:g} s (cohort.wait_s) until the data are corrected: {err}"
                    )
                self._run.wait(f"for data of {', '.join(faulty)} that can be read")
                waits = True
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                for client in faulty:
                    self._cohort.forgive(client)
            else:
                for client in replies:
                    self._again.pop(client, None)
                if waits:
                    self._run.wait("")
                    self._run.note("the data can be read again; the job goes on")
                return replies
