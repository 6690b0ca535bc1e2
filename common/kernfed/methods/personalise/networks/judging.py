"""The choice between several weights of each client by held-out losses of the networks that they train.

A client's few rows say little, so those of the clients that look like it count too, by their weights. B clients, J
candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from kernfed.arrays import Floats, Integers

NUM_FOLDS: Final = 2
"""Of each client's rows; each network is trained without one of them at the client that it is for."""
NEEDED_ERRORS: Final = 2.0
"""By how many standard errors another candidate must be better: the first one is left for good reason only."""


@dataclass(frozen=True, slots=True)
class JudgingRule:
    """What is judged beside the weights of cross-fitting, and for how long networks are trained for it."""

    powers: int
    """How often the weights of Q-aggregation are followed from client to client, see `passed_on`; 1: as they are."""
    share: float
    """Rounds for which networks are trained to be judged, of those that the final ones take. Losses halfway favour
    what learns fast."""
    words: str
    """Whose weights they are, for people."""


RULES: Final[dict[Literal["kinds", "networks"], JudgingRule]] = {
    "kinds": JudgingRule(4, 1.0, "clients that look alike, and those that look like these"),
    "networks": JudgingRule(1, 0.5, "clients whose rows look alike"),
}
"""By the job's key `judge`."""


def passed_on(weights: Floats, powers: int) -> Floats:
    """Weights of the clients that are reached through those that look alike, a power of W, shape (B, B).

    Q-aggregation of few rows leaves much weight at the client itself and little at the others of its kind. Where it
    takes hardly anything from other kinds, its powers spread over the own kind alone. A client whose weights are zeros
    passes nothing on: what reaches it stays there.

    Args:
        weights: W; row t is of client t, on the simplex or zeros, shape (B, B).
        powers: At least 1; 1 leaves them as they are.
    """
    silent = ~weights.any(axis=1)
    through = weights + np.diag(silent.astype(np.float64))
    passed: Floats = np.linalg.matrix_power(through, powers)
    passed[silent] = 0.0
    return passed


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
