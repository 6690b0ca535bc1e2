"""Whether predicted probabilities are as large as they should be: slope and intercept of a logistic recalibration."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Flags, Floats, Integers
from kernfed.maths.metrics import PROBABILITY_FLOOR
from kernfed.maths.scores.estimate import Estimate, num_groups, small_sample

_MOST_STEPS = 50
_ENOUGH = 1e-10
"""Length of the last step."""
_FAR = 1e3
"""Coefficients beyond it walk to infinity: the scores part the classes."""


def calibration(scores: Floats, positive: Flags, group: Integers) -> tuple[Estimate | None, Estimate | None]:
    """Slope and intercept of the truth on the predicted log-odds z.

    The slope b is that of logit P(y = 1) = a + b z: below 1 predictions are too far apart. The intercept is the a of
    logit P(y = 1) = a + z: below 0 they are too high. Right predictions have slope 1 and intercept 0.

    Args:
        scores: Predicted probabilities, (n,); clipped as those of the log-loss.
        positive: (n,).
        group: Number of each row's group, (n,), from 0.

    Returns:
        Both; None for one that does not exist: all predictions are equal, the scores part the classes, or the rows are
        of fewer than two groups.

    Source: Cox (1958); Van Calster et al. (2019), Calibration: the Achilles heel of predictive analytics.
    """
    p = np.clip(scores, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
    z, y = np.log(p / (1.0 - p)), positive.astype(np.float64)
    one = np.ones_like(z)
    slope = _logistic(np.column_stack([one, z]), y, np.zeros_like(z), positive, group)
    intercept = _logistic(one[:, None], y, z, positive, group)
    return slope, intercept


def _logistic(x: Floats, y: Floats, offset: Floats, positive: Flags, group: Integers) -> Estimate | None:
    """The last coefficient of a logistic regression with its influences, H^-1 x_i (y_i - p_i); None: there is none."""
    groups = num_groups(group, np.ones(len(y), dtype=np.bool_))
    if groups < 2 or positive.all() or not positive.any():
        return None
    coefficients = np.zeros(x.shape[1])
    for _ in range(_MOST_STEPS):
        p = _sigmoid(x @ coefficients + offset)
        hessian = (x * (p * (1.0 - p))[:, None]).T @ x
        if np.linalg.cond(hessian) > 1e12:
            return None
        step = np.linalg.solve(hessian, x.T @ (y - p))
        coefficients = coefficients + step / max(1.0, float(np.abs(step).max()))
        if np.abs(coefficients).max() > _FAR:
            return None
        if np.abs(step).max() < _ENOUGH:
            influence = np.linalg.solve(hessian, x.T * (y - p))[-1] * small_sample(groups)
            return Estimate(float(coefficients[-1]), influence, int(min(positive.sum(), (~positive).sum())))
    return None


def _sigmoid(z: Floats) -> Floats:
    found: Floats = 1.0 / (1.0 + np.exp(-np.clip(z, -700.0, 700.0)))
    return found
