"""The limit on guesses."""

from __future__ import annotations

import pytest

from kernfed.errors import BusyError
from kernfed_server.services.enrolment import PeerLimit


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def test_bursts_then_waits() -> None:
    """A peer may fail five times, then once per ten seconds; others are not touched."""
    clock = Clock()
    limit = PeerLimit(burst=5, per_minute=6, clock=clock)
    for _ in range(5):
        limit.check("a")
        limit.spend("a")
    with pytest.raises(BusyError, match="wait 10 s"):
        limit.check("a")
    limit.check("b")
    clock.time = 9.9
    with pytest.raises(BusyError):
        limit.check("a")
    clock.time = 10.1
    limit.check("a")
    clock.time = 10_000
    for _ in range(5):
        limit.check("a")
        limit.spend("a")
    with pytest.raises(BusyError):
        limit.check("a")


def test_memory_is_bounded() -> None:
    """Of a flood of addresses the newest are remembered, as many as may be."""
    limit = PeerLimit(burst=1, per_minute=1, max_peers=10, clock=Clock())
    for n in range(1000):
        limit.spend(str(n))
    refused = []
    for n in range(1000):
        try:
            limit.check(str(n))
        except BusyError:
            refused.append(n)
    assert refused == list(range(990, 1000))
