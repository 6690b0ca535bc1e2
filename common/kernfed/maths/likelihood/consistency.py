"""Whether what one client tells of its part of a likelihood at two points can be of one likelihood.

The negative log-likelihood f of a generalised linear model, or of proportional hazards, is convex. So with v = b - a

    ∇f(a)'v ≤ f(b) - f(a) ≤ ∇f(b)'v

And (∇f(b) - ∇f(a))'v is the mean of v'H v on the way from a to b. There the logarithm of v'H v changes by R at most,
where R is how far the linear predictors of two rows move apart; so the mean is at least the 1/(1 + R)th part of what
v'H v is at either end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats

_ROUNDING = 1e-9
"""Relative rounding of what clients tell..."""
_LAST_PLACES = 1e-14
"""...and of linear predictors, which count where targets have a large offset, or are large counts."""
_BEND = 100.0
"""1 + R: steps are at most two of a column's deviations, and shorter ones where rows far out count."""


@dataclass(frozen=True, slots=True)
class Part:
    """A client's part of a convex function f at a point, over its rows."""

    at: Floats
    """The point, (K,)."""
    value: float
    """f, but for a constant."""
    gradient: Floats
    """Of f, (K,)."""
    hessian: Floats
    """(K, K), positive semidefinite."""


@np.errstate(over="ignore", invalid="ignore")
def contradiction(before: Part, now: Part, *, curved: bool) -> str:
    """Why two parts can be of no convex function, in words; empty: they can.

    Args:
        before: At a point...
        now: ...and at another one.
        curved: Whether the second derivatives may differ; else they are the same at all points.
    """
    v = now.at - before.at
    least, most, rose = float(before.gradient @ v), float(now.gradient @ v), now.value - before.value
    bent = [max(float(v @ part.hessian @ v), 0.0) for part in (before, now)]
    size = abs(now.value) + abs(before.value) + abs(least) + abs(most) + max(bent)
    predictors = math.sqrt(max(float(now.at @ now.hessian @ now.at), 0.0))
    slack = math.sqrt(size) + math.sqrt(max(float(np.diag(now.hessian).max()), 0.0))
    near = _ROUNDING * size + _LAST_PLACES * (1.0 + predictors * slack)
    if not least - near <= rose <= most + near:
        return (
            f"states a likelihood that moved by {-rose:.3g} a row since the last point, where its gradients there and "
            f"here allow {-most:.3g} to {-least:.3g}"
        )
    turned = most - least
    if turned < max(bent) / _BEND - near:
        return (
            f"states gradients that moved by {turned:.3g} a row since the last point, where its second derivatives say "
            f"{max(bent):.3g}"
        )
    if not curved and max(abs(turned - one) for one in bent) > near:
        return f"states second derivatives of {bent[1]:.3g} a row, where its gradients say {turned:.3g}"
    return ""
