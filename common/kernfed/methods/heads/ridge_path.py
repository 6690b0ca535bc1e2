"""Which ridges rows kept apart may choose: by factors of 10 from the job's ridge on, or a higher one."""

from __future__ import annotations

import math

from kernfed.methods.base import Reach

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


def reach(ridge: float, *, searched: bool) -> Reach:
    """Ridges that a job may come to.

    Args:
        ridge: The one with which it begins.
        searched: Whether it tries others by factors of 10; else it may take a higher one, once.
    """

    def holds(asked: float) -> bool:
        if not MIN_RIDGE <= asked <= MAX_RIDGE:
            return asked == ridge
        if not searched:
            return asked >= ridge
        decades = math.log10(asked / ridge) if ridge > 0 else 0.0
        return math.isclose(decades, round(decades), abs_tol=1e-6)

    says = "times a power of 10" if searched else "or more"
    return Reach(holds, f"{ridge:g} {says}, from {MIN_RIDGE:g} to {MAX_RIDGE:g} (method.raise_ridge)")
