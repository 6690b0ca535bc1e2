"""A bound on how many small frames of a client are read per second; the clock is passed in."""

from __future__ import annotations


class FrameRate:
    """A bucket of one second's frames that fills steadily: bursts up to that pass, then frames wait their turn."""

    def __init__(self, frames_per_s: float) -> None:
        self._interval_s = 1.0 / frames_per_s
        self._due = float("-inf")
        """When the frames read so far would be paid for, at a steady rate."""

    def pause_s(self, now: float) -> float:
        """Count a frame; seconds to wait before it is handled.

        Args:
            now: Time in seconds, of a monotonic clock.
        """
        self._due = max(self._due, now) + self._interval_s
        return max(self._due - now - 1.0, 0.0)
