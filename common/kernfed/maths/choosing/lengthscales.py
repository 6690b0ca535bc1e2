"""Which lengthscales to try, as steps of half an octave from the usual one."""

from __future__ import annotations

from collections.abc import Mapping

FARTHEST = 6
"""Steps up or down at most: an eighth of the usual lengthscale, and eight times it."""


def factor(step: int) -> float:
    """What a step multiplies the usual lengthscale by: 2^(step/2)."""
    found: float = 2.0 ** (step / 2)
    return found


def next_step(losses: Mapping[int, float]) -> int | None:
    """The step to try next: by octaves to where it gets no better, then half an octave to either side.

    Args:
        losses: Of each step tried so far; infinity where it cannot be had.

    Returns:
        None where nothing is left to try.
    """
    for step in (0, -2, 2):
        if step not in losses:
            return step
    best = min(losses, key=lambda step: (losses[step], abs(step), step))
    strides = (-2, 2, -1, 1) if best % 2 == 0 else (-1, 1)
    return next((best + s for s in strides if best + s not in losses and abs(best + s) <= FARTHEST), None)
