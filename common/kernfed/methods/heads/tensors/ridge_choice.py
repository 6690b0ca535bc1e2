"""The ridge of a head whose rows are all in one place, by rows kept apart, so that baselines get what the job gets."""

from __future__ import annotations

from dataclasses import replace

from kernfed.methods.heads.ridge_path import RIDGE_GAIN, following
from kernfed.methods.heads.tensors.losses import Head, fit

_TOLERANCE, _MAX_ITERATIONS = 1e-4, 60
"""Of the fits on the way."""


def chosen_ridge(fitting: Head, validation: Head, ridge: float) -> float:
    """The ridge, from `ridge` on by factors of 10, with which rows kept apart are predicted best.

    Ridges grow where rows kept apart gain by a smaller W, and go down elsewhere. The first step may be longer: up to
    the ridge that makes up for that gain, or down to the mean curvature, above which every ridge is too strong.

    Args:
        fitting: Rows to train on.
        validation: Rows kept apart; without any, `ridge` stays.
        ridge: Where to begin.
    """
    if validation.num_rows == 0 or fitting.num_rows == 0:
        return ridge
    weights = fit(replace(fitting, ridge=ridge), tolerance=_TOLERANCE, max_iterations=_MAX_ITERATIONS)
    level, apart = validation.loss_and_slope(weights)
    _, trained = fitting.loss_and_slope(weights)
    shrunk = weights[:-1] if fitting.free_bias else weights
    square = float(shrunk.square().sum())
    missing = (apart - trained) / square if square > 0 else 0.0
    up, best = missing > ridge, ridge
    while True:
        curvature = fitting.hessian(weights).mean_diagonal()
        candidate = following(best, up=up, missing=missing, curvature=curvature)
        if candidate is None:
            return best
        tried = replace(fitting, ridge=candidate)
        weights = fit(tried, weights, tolerance=_TOLERANCE, max_iterations=_MAX_ITERATIONS)
        worth, _ = validation.loss_and_slope(weights)
        if not worth < (1.0 - RIDGE_GAIN) * level:
            return best
        level, best = worth, candidate
