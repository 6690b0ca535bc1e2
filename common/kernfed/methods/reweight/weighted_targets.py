"""What a client states of its weighted targets: how they spread, and whether its targets can have such means."""

from __future__ import annotations

import math

import numpy as np

from kernfed.arrays import Floats
from kernfed.methods.reweight.messages import RatioSummary

_SAME = 1e-3
"""Part of the deviation up to which two moments of the same targets agree, and of the mean where squares tell it."""
_ROUNDING = 1e-9
"""Part of the mean up to which two means of the same targets agree."""


def are_of_targets(told: RatioSummary, mean: float, deviation: float) -> bool:
    """Whether weights of so many effective rows can make a client's weighted means of a regression's targets.

    Shares s of the n rows, of which Σ s² is 1/effective_rows, move the mean by σ √(n/effective_rows - 1) at most, as
    Cauchy's inequality says, and the mean squared distance from it to n σ²/√effective_rows at most.

    Args:
        told: By the client.
        mean: Of its targets.
        deviation: Of these, σ, above 0.
    """
    n, effective = max(told.num_rows, 1), max(told.effective_rows, 1.0)
    slack = _SAME * deviation + (_ROUNDING if told.target_spread else _SAME) * abs(mean)
    moved = float(told.target_mean[0]) - mean
    square = float(told.target_square[0]) - mean * (2 * moved + mean)
    if told.target_spread:
        square = told.target_spread[0] + moved**2
    within = abs(moved) <= deviation * math.sqrt(max(n / effective - 1, 0.0)) + slack
    return within and moved**2 - slack**2 <= square <= deviation**2 * n / math.sqrt(effective) + slack**2


def spread_of(told: RatioSummary) -> Floats:
    """Weighted mean of the squared distances of a client's targets from their weighted mean, (C,).

    Earlier releases told what squares are on average, of which little is left where targets lie far from 0.
    """
    if told.target_spread:
        return np.asarray(told.target_spread, dtype=np.float64)
    mean = np.asarray(told.target_mean, dtype=np.float64)
    found: Floats = np.maximum(told.target_square - np.square(mean), 0.0)
    return found
