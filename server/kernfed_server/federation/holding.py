"""Clients that answer a call once somebody has decided: the job's operator, who signs it, or people at their site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernfed.errors import ApprovalError, SubmissionError
from kernfed.wording import listed

MAX_ASKED_AGAIN = 1000
"""Times that a client is asked again in a call since its site has decided."""

UNSIGNED, UNAPPROVED = SubmissionError.reason, ApprovalError.reason


@dataclass(frozen=True, slots=True)
class _Held:
    reason: str
    since: float
    """By `time.monotonic`: in the first step of the job in which it was so."""


class Holding:
    """The clients of one call that hold their answers back, and what they wait for."""

    def __init__(self, job_id: str, operator: str, since: Callable[[str, str, str], float]) -> None:
        """Begin with none.

        Args:
            job_id: Job of the call.
            operator: Whose job it is.
            since: (job, client, reason) -> since when, over all calls of the job.
        """
        self._job_id = job_id
        self._operator = operator
        self._since = since
        self._held: dict[str, _Held] = {}
        self._decided: Counter[str] = Counter()

    def add(self, client: str, reason: str) -> None:
        """A client refuses for a reason that may pass: `UNSIGNED` or `UNAPPROVED`."""
        self._held[client] = _Held(reason, self._since(self._job_id, client, reason))

    def holds(self, client: str, reason: str) -> bool:
        """Whether a client holds back for a reason."""
        held = self._held.get(client)
        return held is not None and held.reason == reason

    def release(self, client: str) -> None:
        """A client is asked again, or has answered."""
        self._held.pop(client, None)

    def signed(self) -> tuple[str, ...]:
        """The job was signed; gives the clients that waited for it."""
        again = tuple(client for client in self._held if self.holds(client, UNSIGNED))
        for client in again:
            self.release(client)
        return again

    def decides_too_often(self, client: str) -> bool:
        """A site has decided: whether it did so more often than people do."""
        self._decided[client] += 1
        return self._decided[client] > MAX_ASKED_AGAIN

    def among(self, pending: Iterable[str]) -> dict[str, float]:
        """Those of the clients that hold back, each with the time since when."""
        return {client: self._held[client].since for client in pending if client in self._held}

    def why_missing(self, client: str) -> str:
        """Words on a client that has not answered, behind a sentence; empty: it holds nothing back."""
        if self.holds(client, UNSIGNED):
            return "; it asks for the signature of the job's operator (`kernfed job sign`)"
        return "; the job waits for approval there" if self.holds(client, UNAPPROVED) else ""

    def _of(self, reason: str, clients: Iterable[str]) -> list[str]:
        return sorted(client for client in clients if self.holds(client, reason))

    def closing(self, away: Iterable[str], until: str) -> str:
        """What a step waits for that closes without those who are away.

        Args:
            away: Clients without a session, and those that hold back.
            until: When it closes.
        """
        names = sorted(away)
        if names == self._of(UNAPPROVED, names):
            return f"waiting for approval at {listed(names)} until {until}"
        asks = ", or asks for a signature" if self._of(UNSIGNED, names) else ""
        asks += ", or has not approved the job" if self._of(UNAPPROVED, names) else ""
        return f"waiting for {', '.join(names)} (not connected{asks}) until {until}"

    def waiting(self, away: Iterable[str], until: str) -> str:
        """What a step waits for that needs those who hold back; empty: nobody does.

        Args:
            away: Clients without a session, and those that hold back.
            until: When it gives up; empty: never.
        """
        names = list(away)
        unsigned, unapproved = self._of(UNSIGNED, names), self._of(UNAPPROVED, names)
        said = []
        if unsigned:
            said.append(
                f"waiting for the signature of {self._operator}, which {listed(unsigned)} "
                f"ask{'s' if len(unsigned) == 1 else ''} for: kernfed job sign {self._job_id}"
            )
        if unapproved:
            said.append(f"waiting for approval at {listed(unapproved)}{f' until {until}' if until else ''}")
        return "; ".join(said)
