"""How far a head's loss is above its least, by the gradient: what the coordinator can say without rows."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array
from kernfed.maths.losses import Link
from kernfed.methods.heads.losses import FACTS, LEAST_SHARE
from kernfed.methods.heads.messages import HeadLoss


def excess(gradient: Array, ridge: float, loss: HeadLoss, free_bias_at: Array | None) -> float:
    """By how much F(W) is above its minimum, at most.

    F is strongly convex with the ridge in all rows of W that it holds, so that the rest of the way down takes at most
    |G|²/(2 ridge). A free bias is in no ridge. Near its minimum the loss is bent by the variance of the targets'
    classes: Σ G_c²/(2 p_c (1 - p_c)) with one output, Σ G_c²/(2 p_c) with softmax, Σ G_c²/2 of numbers. That part is
    an estimate.

    Args:
        gradient: G = ∇F(W), shape (D, C).
        ridge: Above 0.
        loss: Of a row.
        free_bias_at: Pooled mean of the targets, shape (C,), where the last row of W is a free bias; None: none is.
    """
    if free_bias_at is None:
        return float(np.vdot(gradient, gradient)) / (2.0 * ridge)
    held, bias = gradient[:-1], gradient[-1]
    link, share = FACTS[loss].link, np.clip(free_bias_at, LEAST_SHARE, 1.0 - LEAST_SHARE)
    bent = {Link.IDENTITY: np.ones_like(share), Link.LOGISTIC: share * (1.0 - share), Link.SOFTMAX: share}[link]
    return float(np.vdot(held, held)) / (2.0 * ridge) + float(np.sum(bias**2 / (2.0 * bent)))
