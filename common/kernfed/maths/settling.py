"""How far an iteration is from its limit, by the movements of its last rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats


@dataclass(frozen=True, slots=True)
class Progress:
    """Movement of an iteration from round to round."""

    movement: float
    """|V_t - V_t-1| / |V_t|."""
    contraction: float | None
    """Estimate of the affine map's spectral radius: by what a round multiplied the movement; None in early rounds."""
    distance: float | None
    """Estimate of |V_t - limit| / |V_t|, from both; None where there is no contraction."""


def progress(movements: Sequence[float], window: int = 5) -> Progress:
    """Judge an iteration by its movements so far.

    V_t+1 - V_t is the affine map's linear part applied t times to V_2 - V_1, so the quotient of movements tends to its
    spectral radius from below (the map is similar to a symmetric one), and the rest of the way is a geometric series.

    Args:
        movements: |V_t - V_t-1| / |V_t| of rounds 2, 3, ...; at least one.
        window: Rounds over which the quotient is averaged, against rounding.
    """
    last = movements[-1]
    back = min(window, len(movements) - 1)
    if back == 0 or movements[-1 - back] <= 0.0 or last <= 0.0:
        return Progress(last, None, 0.0 if last == 0.0 else None)
    ratio = float((last / movements[-1 - back]) ** (1.0 / back))
    return Progress(last, ratio, last * ratio / (1.0 - ratio) if ratio < 1.0 else None)


def relative_movement(before: Floats, now: Floats) -> float:
    """|V_t - V_t-1| / |V_t|, 0 where both are 0."""
    size = float(np.linalg.norm(now))
    step = float(np.linalg.norm(now - before))
    return step / size if size > 0 else float(step > 0)
