"""The choice between several weights of each client by held-out losses of the networks that they train.

A client's few rows say little, so those of the clients that look like it count too, by their weights. B clients, J
candidates.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kernfed.arrays import Floats, Integers

NUM_FOLDS: Final = 2
"""Of each client's rows; each network is trained without one of them at the client that it is for."""
JUDGED_SHARE: Final = 0.5
"""Rounds for which networks are trained to be judged, of those that the final ones take."""
NEEDED_ERRORS: Final = 2.0
"""By how many standard errors another candidate must be better. Losses halfway favour what learns fast, so the first
candidate is left for good reason only."""


def without_a_fold(mix: Floats, own: Integers) -> Floats:
    """Weights of mixtures whose own client gives all folds but one; each row sums to 1 again.

    Args:
        mix: Weights, shape (T, B).
        own: Place of the client that each mixture is for, shape (T,).
    """
    kept = mix.copy()
    kept[np.arange(len(mix)), own] *= 1.0 - 1.0 / NUM_FOLDS
    scaled: Floats = kept / kept.sum(axis=1, keepdims=True)
    return scaled


def choose(likeness: Floats, losses: Floats, covariances: Floats) -> Integers:
    """Choose a candidate for each client, shape (T,).

    The first is the choice, unless the loss of another one is less by more than `NEEDED_ERRORS` standard errors.
    Losses and errors are over the clients that look like this one.

    Args:
        likeness: How much each client's losses count for each target, at least 0, shape (T, B).
        losses: Mean held-out loss of each client's candidates, shape (B, J).
        covariances: Of these means, over the client's rows, shape (B, J, J).
    """
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    variance = variances + variances[:, [0]] - 2.0 * covariances[:, :, 0]
    sums = likeness.sum(axis=1, keepdims=True)
    share = np.divide(likeness, sums, out=np.zeros_like(likeness), where=sums > 0)
    error = np.sqrt(np.square(share) @ np.maximum(variance, 0.0))
    score = share @ (losses - losses[:, [0]]) + NEEDED_ERRORS * error
    score[:, 0] = 0.0  # the first of equals is taken
    chosen: Integers = np.argmin(score, axis=1).astype(np.int64)
    return chosen
