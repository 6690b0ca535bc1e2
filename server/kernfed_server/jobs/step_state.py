"""The state of one step that clients were asked: events in, decisions out, the clock passed in.

No IO and no await: the asyncio side is in `exchange.py`, and a test drives this with a list of events.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


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
    """

    needed: int
    everyone: bool
    deadline_s: float
    wait_s: float


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

    def decide(self, now: float) -> Decision:
        """The action at time `now` (seconds, the clock of the constructor)."""
        have = len(self._answered)
        if not self._pending:
            return Decision.CLOSE if have >= self._rules.needed else Decision.FAIL
        if have + len(self._pending) < self._rules.needed or now >= self._give_up:
            closes = have >= self._rules.needed and not self._rules.everyone
            return Decision.CLOSE if closes else Decision.FAIL
        if not self._rules.everyone and now >= self._deadline and have >= self._rules.needed:
            return Decision.CLOSE
        return Decision.OPEN

    def next_change(self, now: float) -> float:
        """Seconds until time alone may change the decision."""
        wanted = self._deadline if now < self._deadline else self._give_up
        return max(wanted - now, 0.0)

    def waiting(self, present: frozenset[str], now: float) -> str:
        """Says what the step lacks, e.g. "waiting: 2 of 3 clients (missing: va)"; empty when nothing is amiss.

        Args:
            present: Clients that have a session.
            now: Current time.
        """
        wanted = self._rules.needed
        if self._rules.everyone:
            wanted = max(wanted, len(self._answered) + len(self._pending))
        reachable = len(self._answered) + sum(c in present for c in self._pending)
        missing = [c for c in self._pending if now >= self._deadline or c not in present]
        if (reachable >= wanted and now < self._deadline) or not missing:
            return ""
        have = len(self._answered) if now >= self._deadline else reachable
        return f"waiting: {have} of {wanted} clients (missing: {', '.join(missing)})"
