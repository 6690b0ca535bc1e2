"""Tests of `kernfed_client.daemon.idle_cuts`: a box that cuts idle lines is named, and kept from cutting."""

from __future__ import annotations

import math

import pytest

from kernfed_client.daemon.idle_cuts import IdleCuts


def test_three_sessions_that_break_alike_name_the_box() -> None:
    """From then on heartbeats come more often than the line may be idle."""
    found = IdleCuts()
    for idle_s in (60.1, 59.8):
        found.broke(idle_s)
        assert (found.text, found.interval_s(300.0)) == ("", 300.0)
    found.broke(60.3)
    assert "cuts idle connections after about 59.8 s" in found.text
    assert "Set heartbeat_interval_s in the coordinator file below that" in found.text
    assert found.interval_s(300.0) == pytest.approx(29.9)
    assert found.interval_s(5.0) == 5.0


def test_other_ends_tell_nothing() -> None:
    """Breaks after unlike times, at once, or with another end between them are no time-out of a box."""
    found = IdleCuts()
    for idle_s in (60.0, 12.0, 33.0, 60.0, 0.0, 0.1, 0.1):
        found.broke(idle_s)
    found.broke(60.0)
    found.broke(60.0)
    found.forget()
    found.broke(60.0)
    assert found.after_s is None
    assert found.interval_s(math.inf) == math.inf
