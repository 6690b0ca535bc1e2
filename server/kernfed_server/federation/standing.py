"""Where the open step of a job stands, for people who look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """A step that waits for replies."""

    step: str
    """Wire name."""
    round_num: int
    asked: tuple[str, ...]
    """Clients."""
    pending: tuple[str, ...]
    """Those of them whose reply is still wanted."""
    away: frozenset[str]
    """Those of the pending ones that are not at work on it: without a session, or holding back."""
    until: str
    """When it ends at the latest, for reading; empty: at no time that anybody lives to see."""
    closes: bool
    """Whether it then closes on the answers that are there; else it fails."""
