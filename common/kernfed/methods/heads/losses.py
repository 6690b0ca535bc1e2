"""What is known of a head's losses without rows: for the coordinator too, which has no torch.

The losses themselves are in `kernfed.methods.heads.tensors.row_losses`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.losses import Link
from kernfed.methods.heads.messages import HeadLoss


@dataclass(frozen=True, slots=True)
class LossFacts:
    """One loss of a head. D features."""

    link: Link
    """From scores to predictions."""
    warm_up_rate: float
    """Over D: the learning rate of local training where features are many, whose curvature adds up.

    With momentum 0.9 a step is stable while rate times curvature stays below 3.8. D features of unit size bend the
    squared loss by up to D at any weights: 1.5 leaves a margin of 2.5. Cross-entropies are bent by at most half of
    that, and the less the surer the predictions are: ten times the rate.
    """
    ridge_per_gap: float
    """Ridge over `kernfed.methods.heads.safe_newton.Scaling.ridge`, which is the one that rows kept apart call for.

    With more than 1 log-loss hardly rises under softmax, and more classes are right.
    """
    couples_outputs: bool = False
    """Whether the Hessian of a row by its scores has numbers off its diagonal."""
    one_output: bool = False
    """Whether the loss is of one output only."""


LEAST_SHARE = 1e-4
"""Share of a class from which a bias starts at least: without a row of a class its bias has no minimum."""

FACTS: Mapping[HeadLoss, LossFacts] = {
    HeadLoss.SOFTMAX: LossFacts(Link.SOFTMAX, warm_up_rate=15.0, ridge_per_gap=3.0, couples_outputs=True),
    HeadLoss.LOGISTIC: LossFacts(Link.LOGISTIC, warm_up_rate=15.0, ridge_per_gap=1.0, one_output=True),
    HeadLoss.SQUARED: LossFacts(Link.IDENTITY, warm_up_rate=1.5, ridge_per_gap=1.0),
}


def start_scores(loss: HeadLoss, target_mean: Array) -> Floats:
    """Scores at which the predictions are the pooled mean of the targets: where a free bias starts.

    Args:
        loss: Which.
        target_mean: Pooled mean of the encoded targets, shape (C,): of classes their shares.

    Returns:
        Shape (C,): numbers, log-odds, or logarithms of shares, of which softmax ignores a common constant: their mean
        is 0.
    """
    mean = np.asarray(target_mean, dtype=np.float64)
    link = FACTS[loss].link
    if link is Link.IDENTITY:
        return mean
    share = np.clip(mean, LEAST_SHARE, 1.0 - LEAST_SHARE)
    if link is Link.LOGISTIC:
        odds: Floats = np.log(share) - np.log1p(-share)
        return odds
    scores: Floats = np.log(share) - np.log(share).mean()
    return scores
