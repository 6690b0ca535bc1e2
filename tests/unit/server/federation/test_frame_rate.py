"""Frames of a client per second are bounded, with bursts of one second."""

from __future__ import annotations

from kernfed_server.federation.frame_rate import FrameRate


def test_burst_passes_and_the_rest_waits() -> None:
    """One second's frames pass at once; each one more waits for its share of a second."""
    rate = FrameRate(10)
    pauses = [rate.pause_s(100.0) for _ in range(12)]
    assert max(pauses[:10]) < 1e-9
    assert abs(pauses[10] - 0.1) < 1e-9
    assert abs(pauses[11] - 0.2) < 1e-9


def test_steady_frames_never_wait() -> None:
    """A client that keeps to the rate is not held up, however long it goes on, and silence saves up one burst only."""
    rate = FrameRate(10)
    assert max(rate.pause_s(i / 10) for i in range(1000)) < 1e-6
    assert [rate.pause_s(1e6) > 1e-6 for _ in range(12)] == [False] * 10 + [True] * 2
