"""Notices a box between client and coordinator that cuts idle connections, and keeps them from being idle."""

from __future__ import annotations

import statistics

import structlog

log = structlog.get_logger(__name__)

IN_A_ROW = 3
"""So many sessions must end alike before it is said."""
_LEAST_S = 0.5
"""Shorter silences are no idle lines."""
_SPREAD, _SPREAD_S = 0.15, 0.3
"""Times are alike within this part of them and so many seconds."""


class IdleCuts:
    """Idle times after which sessions broke, one after the other.

    Attributes:
        after_s: After about so many seconds something cuts idle lines; None: nothing is known to.
    """

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._idle_s: list[float] = []
        self.after_s: float | None = None

    def broke(self, idle_s: float) -> None:
        """A session that was open ended by a reset or a close without a word, after so many seconds without a frame."""
        self._idle_s = [*self._idle_s, idle_s][-IN_A_ROW:]
        middle = statistics.median(self._idle_s)
        alike = max(self._idle_s) - min(self._idle_s) <= _SPREAD * middle + _SPREAD_S
        if len(self._idle_s) < IN_A_ROW or not alike or middle < _LEAST_S:
            return
        self.after_s, self._idle_s = min(self._idle_s), []
        log.warning(self.text, idle_s=round(self.after_s, 1), heartbeat_s=round(self.interval_s(float("inf")), 1))

    def forget(self) -> None:
        """A session ended in another way, or none could be opened: nothing follows from those before."""
        self._idle_s = []

    def interval_s(self, wanted_s: float) -> float:
        """Seconds between this client's heartbeats: as the coordinator wants them, or more often to keep the line."""
        return wanted_s if self.after_s is None else min(wanted_s, self.after_s / 2)

    @property
    def text(self) -> str:
        """What is known, for people; empty where that is nothing."""
        if self.after_s is None:
            return ""
        return (
            f"something between this client and the coordinator (a firewall, a load balancer, a NAT) cuts idle "
            f"connections after about {self.after_s:.1f} s; this client sends heartbeats more often from now on. Set "
            "heartbeat_interval_s in the coordinator file below that, or have the time-out raised"
        )
