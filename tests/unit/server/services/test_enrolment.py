"""The limit on guesses, and whom it counts."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from kernfed.errors import BusyError
from kernfed_server.services.enrolment import PeerLimit, peer_host


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


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:5501", "ipv4:10.0.0.1"),
        ("ipv6:%5B2001:db8::1%5D:5501", "2001:db8::/64"),
        ("ipv6:[2001:db8:0:0:9::7]:5502", "2001:db8::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::/64"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:1", "ipv4:10.0.0.1"),
        ("unix:", "unix"),
    ],
)
def test_an_address_of_ipv6_counts_with_its_network(peer: str, host: str) -> None:
    """One machine has 2^64 of them."""
    context: Any = mock.Mock(peer=lambda: peer)
    assert peer_host(context) == host
