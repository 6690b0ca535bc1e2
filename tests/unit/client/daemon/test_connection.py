"""How long a client waits before it dials again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernfed_client.daemon.connection import MIN_BACKOFF_S, backoff_s


@given(st.integers(0, 10**6), st.floats(0.01, 3600))
def test_backoff_is_bounded(attempt: int, longest: float) -> None:
    """The pause before another attempt grows with the attempts and stays within its bounds."""
    pause = backoff_s(attempt, longest)
    assert MIN_BACKOFF_S <= pause <= MIN_BACKOFF_S + min(longest, MIN_BACKOFF_S * 2 ** min(attempt, 30))


def test_backoff_grows_and_is_jittered() -> None:
    """Clients that lose the coordinator together do not come back together."""
    late = [backoff_s(20, 30.0) for _ in range(200)]
    assert max(late) > 20
    assert len({round(pause, 3) for pause in late}) > 150
    assert max(backoff_s(0, 30.0) for _ in range(200)) <= 2 * MIN_BACKOFF_S
