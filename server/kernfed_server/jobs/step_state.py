"""The state of one step that clients were asked: events in, decisions out, the clock passed in.

No IO and no await: the asyncio side is in `exchange.py`, and a test drives this with a list of events.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kernfed.federation.quorum import RowsNeeded


class Decision(enum.Enum):
    """The next action on a step."""

    OPEN = enum.auto()
    """Go on waiting."""
    CLOSE = enum.auto()
    """Enough answers, and no reason to wait for more."""
    FAIL = enum.auto()
    """The quorum cannot be met, or was not for as long as the job would wait."""


@dataclass(frozen=True, slots=True)
class StepRules:
    """Conditions under which a step closes.

    Attributes:
        needed: Answers that suffice once the deadline has passed.
        everyone: Whether every client without a fault is waited for, deadline or not.
        deadline_s: Seconds from the start after which the step closes on its quorum.
        wait_s: Seconds from the deadline after which a step below quorum fails.
        grace_s: Seconds for which a step that has its quorum waits for clients without a session.
        rows: Rows that must stand behind the answers as well.
    """

    needed: int
    everyone: bool
    deadline_s: float
    wait_s: float
    grace_s: float = math.inf
    rows: RowsNeeded = field(default_factory=RowsNeeded)

    def met(self, clients: Iterable[str]) -> bool:
        """Whether the answers of these clients are a quorum."""
        names = set(clients)
        return len(names) >= self.needed and self.rows.reached(names)


Away = Mapping[str, float]
"""Clients that have no session, each with the time since when, by the clock of the step."""


class StepState:
    """Clients that answered, failed or are missing in a step, which closes once."""

    def __init__(self, clients: tuple[str, ...], rules: StepRules, now: float) -> None:
        self._rules = rules
        self._deadline = now + rules.deadline_s
        self._give_up = self._deadline + rules.wait_s
        self._pending = dict.fromkeys(clients)
        self._answered: dict[str, None] = {}
        self._faulted: dict[str, None] = {}

    @property
    def pending(self) -> tuple[str, ...]:
        """Clients that have neither answered nor failed."""
        return tuple(self._pending)

    def on_reply(self, client: str) -> bool:
        """A valid reply came in; False when this client's answer is not wanted (any more)."""
        if client not in self._pending:
            return False
        del self._pending[client]
        self._answered[client] = None
        return True

    def on_fault(self, client: str) -> bool:
        """A client answered wrongly, or cannot answer; False when it was not pending."""
        if client not in self._pending:
            return False
        del self._pending[client]
        self._faulted[client] = None
        return True

    @property
    def gives_up_at(self) -> float:
        """When a step that lacks its quorum, or waits for everyone, fails."""
        return self._give_up

    def can_spare(self, client: str) -> bool:
        """Whether the quorum can be met without a client."""
        return self._rules.met(self._answered.keys() | (self._pending.keys() - {client}))

    def decide(self, now: float, away: Away = MappingProxyType({})) -> Decision:
        """The action at time `now` (seconds, the clock of the constructor)."""
        met = self._rules.met(self._answered)
        if not self._pending:
            return Decision.CLOSE if met else Decision.FAIL
        if now >= self._give_up or not self._rules.met(self._answered.keys() | self._pending.keys()):
            closes = met and not self._rules.everyone
            return Decision.CLOSE if closes else Decision.FAIL
        if now >= self.closes_at(away):
            return Decision.CLOSE
        return Decision.OPEN

    def closes_at(self, away: Away) -> float:
        """When a step that has its quorum closes without those that are missing; infinity where it does not."""
        if self._rules.everyone or not self._rules.met(self._answered):
            return math.inf
        if self._pending.keys() <= away.keys():
            return min(self._deadline, max(away[c] for c in self._pending) + self._rules.grace_s)
        return self._deadline

    def is_late(self, now: float) -> bool:
        """Whether the deadline has passed; a step may close before, without clients that have no session."""
        return now >= self._deadline

    def next_change(self, now: float, away: Away = MappingProxyType({})) -> float:
        """Seconds until time alone may change the decision."""
        wanted = self._deadline if now < self._deadline else self._give_up
        return max(min(wanted, self.closes_at(away)) - now, 0.0)

    def waiting(self, away: Away, now: float) -> str:
        """Says what the step lacks, e.g. "waiting: 2 of 3 clients (missing: va)"; empty when nothing is amiss.

        Args:
            away: Clients that have no session.
            now: Current time.
        """
        wanted = self._rules.needed
        if self._rules.everyone:
            wanted = max(wanted, len(self._answered) + len(self._pending))
        there = [*self._answered, *(c for c in self._pending if c not in away)]
        reachable, rows = len(there), self._rules.rows.words(there)
        missing = [c for c in self._pending if now >= self._deadline or c in away]
        if (reachable >= wanted and not rows and now < self._deadline) or not missing:
            return ""
        have = len(self._answered) if now >= self._deadline else reachable
        lacking = f" with {rows}" if rows else ""
        return f"waiting: {have} of {wanted} clients{lacking} (missing: {', '.join(missing)})"
