"""The least value of a convex quadratic on the simplex, by an interior point.

Weights stay above 0 on the way, so no set of active clients has to be guessed: nearly dependent embeddings, at which
active sets turn in circles, cost no more steps than others. Ten to fifteen steps, each one factor of a (B, B) matrix.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernfed.arrays import Floats

_MAX_STEPS = 100
_TO_BORDER = 0.995
"""Part of the way to the border that a step goes."""


def minimise_on_simplex(quadratic: Floats, linear: Floats, limit: float) -> Floats:
    """Minimise w'Qw/2 + c'w over weights that are at least 0 and sum to 1.

    Entries are to be about 1 at most, since sums of weights are held beside them.

    Args:
        quadratic: Q, positive semidefinite, shape (B, B).
        linear: c, shape (B,).
        limit: Of g'w - min g with g = Qw + c, at which to stop; it bounds the distance to the least value.

    Returns:
        The weights of the least gap that was seen, shape (B,): above the limit where rounding allows no less. Where the
        optimum is not unique, clients with the same entries share alike.

    Source: Mehrotra (1992), a predictor and a corrector by one factor, here for min with one equality.
    """
    num = len(linear)
    ones = np.ones(num)
    w = ones / num
    slack = np.full(num, max(1e-3, float(np.abs(quadratic @ w + linear).max())))
    level = 0.0
    best, least = w, np.inf
    for _ in range(_MAX_STEPS):
        g = quadratic @ w + linear
        gap = float(w @ g - g.min())
        if gap < least:
            best, least = w, gap
        if least <= limit:
            break
        try:
            factor = cho_factor(quadratic + np.diag(slack / w), lower=True)
        except LinAlgError:  # a weight below rounding: no step is left
            break
        along = cho_solve(factor, ones)
        residual = g - level - slack

        def step(wanted: Floats) -> tuple[Floats, Floats, float]:
            """Moves of weights, slack and level that bring w · slack to w · slack - wanted."""
            move = cho_solve(factor, -residual - wanted / w)  # noqa: B023  # called before the next turn
            raised = float((1.0 - w.sum() - move.sum()) / along.sum())  # noqa: B023  # the same
            move = move + raised * along  # noqa: B023  # the same
            return move, -(wanted + slack * move) / w, raised  # noqa: B023  # the same

        move, turn, _ = step(w * slack)
        reached = (w + _longest(w, move) * move) @ (slack + _longest(slack, turn) * turn)
        centre = (float(reached) / float(w @ slack)) ** 3 * float(w @ slack) / num
        move, turn, raised = step(w * slack + move * turn - centre)
        length = min(1.0, _TO_BORDER * min(_longest(w, move, np.inf), _longest(slack, turn, np.inf)))
        w = w + length * move
        w = w / w.sum()
        slack, level = slack + length * turn, level + length * raised
    return best


def _longest(values: Floats, move: Floats, most: float = 1.0) -> float:
    """The longest step, up to `most`, at which no value is below 0."""
    falling = move < 0
    return min(most, float((values[falling] / -move[falling]).min())) if falling.any() else most
