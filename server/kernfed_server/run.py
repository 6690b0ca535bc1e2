"""A run of a job as its workflow sees it: rounds that can be resumed, records, notes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernfed.cohort import Cohort
from kernfed.events import EventKind, JobEvent, RoundMetrics
from kernfed.messages.base import Array

State = Mapping[str, Array]
"""What a workflow needs to go on from a round: named arrays."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A finished round and the state after it."""

    round_num: int
    state: State


class Journal(Protocol):
    """Where a run is written down: the coordinator's store, or memory."""

    def event(self, event: JobEvent) -> None:
        """Note a fact; never blocks for long."""
        ...

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep the state after a round, atomically, in place of the one before."""
        ...


@dataclass
class MemoryJournal:
    """Keeps events in a list and the last checkpoint in memory."""

    events: list[JobEvent] = field(default_factory=list)
    last: Checkpoint | None = None

    def event(self, event: JobEvent) -> None:
        """See `Journal.event`."""
        self.events.append(event)

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `Journal.checkpoint`."""
        self.last = checkpoint


class Run:
    """One job's run: what a workflow uses beside its cohort."""

    def __init__(self, cohort: Cohort, journal: Journal, resumed: Checkpoint | None = None, evaluate_every: int = 1):
        self._cohort = cohort
        self._journal = journal
        self._resumed = resumed
        self._evaluate_every = evaluate_every
        self._round = resumed.round_num if resumed else 0

    @property
    def resumed(self) -> State | None:
        """State after the last finished round of an earlier life of this run, else None."""
        return self._resumed.state if self._resumed else None

    async def rounds(self, last: int) -> AsyncIterator[int]:
        """Round numbers still to do, up to `last`; entering one opens it for the cohort."""
        for round_num in range(self._round + 1, last + 1):
            self._cohort.enter_round(round_num)
            self._journal.event(JobEvent(EventKind.ROUND_OPENED, round_num))
            yield round_num

    def evaluates(self, round_num: int, last: int) -> bool:
        """Whether this round's model is to be measured at the clients."""
        return round_num == last or round_num % self._evaluate_every == 0

    async def record(self, round_num: int, state: State, metrics: RoundMetrics | None = None) -> None:
        """Close a round: its state is on disk before the next one opens."""
        # The event first: the journal stores what was noted together with the checkpoint, so no metrics are lost.
        self._journal.event(JobEvent(EventKind.ROUND_CLOSED, round_num, metrics=metrics or RoundMetrics()))
        await self._journal.checkpoint(Checkpoint(round_num, state))
        self._round = round_num

    def publish(self, name: str, finding: Mapping[str, Any]) -> None:
        """Keep a result of the method for the artifacts (`findings.json`) and the report.

        Args:
            name: Which result; a later one of the same name takes its place. The report shows those that
                `kernfed.report_sections` knows.
            finding: JSON values.
        """
        self._journal.event(JobEvent(EventKind.FINDING, self._round, message=name, finding=finding))

    def note(self, message: str) -> None:
        """Tell the operator something, once, in words."""
        self._journal.event(JobEvent(EventKind.NOTE, self._round, message=message))
