"""Clients that join a job on streams while it runs: those named that were away at its start, and those that come later.

They are prepared beside the rounds, so that nobody waits while a newcomer reads its data, and take part from the round
after that.
"""

from __future__ import annotations

import asyncio
import time

from kernfed.errors import KernfedError
from kernfed.federation.cohort import Cohort
from kernfed.federation.exchange import NO_ANSWER, Fault
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.state import json_array, json_of

_LOOK_S = 1.0
_LATE = "late"
"""Name of the clients that are not prepared, among what the run keeps."""


class Newcomers:
    """Clients that are on the way into a job."""

    def __init__(self, cohort: Cohort, run: Run) -> None:
        """Take back those that only were away when the others were prepared."""
        self._cohort = cohort
        self._run = run
        self._joining: dict[str, asyncio.Task[Fault | None]] = {}
        self._refused: set[str] = set()
        self._next_look = 0.0
        self.late = {client for client, fault in cohort.excluded.items() if fault.reason == NO_ANSWER.reason}
        """Clients of the cohort that are not prepared, and not to be asked yet."""
        kept = run.agreed.get(_LATE)
        if kept is not None:
            self.late |= set(json_of(kept)) & set(cohort.clients)
        self._keep()
        for client in self.late:
            cohort.admit(client)

    def _keep(self) -> None:
        """Let a later life of the run know who is not prepared."""
        self._run.agreed.put(_LATE, json_array(sorted(self.late)))

    def look(self) -> None:
        """Begin to prepare the clients that are there now, and let in those that are ready. Mostly costs nothing."""
        self._let_in()
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_S
        there = {*self._cohort.candidates, *(self.late.intersection(self._cohort.present) if self.late else ())}
        self._refused &= there
        for client in sorted(there - self._refused - self._joining.keys()):
            self._joining[client] = asyncio.create_task(self._cohort.prepare(client), name=f"prepare {client}")

    def _let_in(self) -> None:
        for client in [c for c, task in self._joining.items() if task.done()]:
            try:
                fault = self._joining.pop(client).result()
            except KernfedError as err:
                fault = Fault.of(err)
            if fault is None:
                self.late.discard(client)
                self._keep()
                self._cohort.admit(client)
                self._run.joined(client)
            elif fault.reason != NO_ANSWER.reason:  # else it is tried again
                self._refuse(client, fault)

    def _refuse(self, client: str, fault: Fault) -> None:
        self._refused.add(client)
        self._run.note(f"{client} cannot join: {fault.reason}: {fault.message}")
        if client in self.late:
            self.late.discard(client)
            self._keep()
            self._cohort.exclude(client, fault)

    async def settle(self) -> bool:
        """With nobody else left: wait for clients on the way, at most `cohort.deadline_s`.

        Those of the cohort that are still away are handed over to it, which waits for them as for its quorum.

        Returns:
            Whether there may be somebody to ask now.
        """
        if self._joining:
            await asyncio.wait(self._joining.values(), return_when=asyncio.FIRST_COMPLETED)
            self._let_in()
            return True
        handed_over = bool(self.late)
        self.late.clear()
        self._keep()
        return handed_over

    def stop(self) -> None:
        """The job ends; whoever is on the way stays out."""
        for task in self._joining.values():
            task.cancel()
        self._joining.clear()
