"""Which ridges a search by rows kept apart tries: the grid of factors of 10 from the job's ridge on."""

from __future__ import annotations

import math

MAX_RIDGE, MIN_RIDGE = 1e6, 1e-12
RIDGE_GAIN = 0.005
"""Part of the loss on rows kept apart that a further ridge must take off to be followed by another one."""


def following(ridge: float, *, up: bool, missing: float, curvature: float) -> float | None:
    """The ridge to try after this one; None beyond the range of ridges.

    A first step may be long: nothing is to be seen between ridges that are all too strong, or all too weak.

    Args:
        ridge: The one tried last.
        up: Whether ridges grow.
        missing: The ridge with which rows trained on pull at W as hard as others do; ridges grow up to it.
        curvature: Mean curvature of the loss, above which a ridge is too strong: ridges go down to it; 0 where it is
            not known.
    """
    far = missing / ridge if up else ridge / curvature if curvature > 0 else 1.0
    factor = 10.0 ** max(math.floor(math.log10(far) + 1e-6), 1) if far > 0 else 10.0
    found = ridge * factor if up else ridge / factor
    return found if MIN_RIDGE <= found <= MAX_RIDGE else None
