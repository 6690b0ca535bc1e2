"""Metrics of predictions: their names in the order of what they tell, and the sums that make them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Flags, Floats

PROBABILITY_FLOOR = 1e-3
"""Scores are clipped to at least this before their logarithm is taken."""


def auc(scores: Floats, positive: Flags) -> tuple[float, float]:
    """Compute the area under the ROC curve.

    Args:
        scores: Shape (n,).
        positive: Whether each row is of the positive class, shape (n,).

    Returns:
        The area, in [0, 1], and the number of (positive, negative) pairs; both 0 where one class is missing.

    Source: Mann & Whitney (1947); ties count one half.
    """
    num_positive = int(positive.sum())
    pairs = num_positive * (positive.size - num_positive)
    if pairs == 0:
        return 0.0, 0.0
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    ordered = float(ranks[inverse][positive].sum()) - num_positive * (num_positive + 1) / 2
    return ordered / pairs, float(pairs)


def macro_auc(scores: Floats, positive: Flags) -> tuple[float, float]:
    """Compute the mean of `auc` over the classes that have it, and the sum of their pairs; both shapes (n, C)."""
    areas = [auc(scores[:, c], positive[:, c]) for c in range(scores.shape[1])]
    defined = [area for area, pairs in areas if pairs > 0]
    if not defined:
        return 0.0, 0.0
    return sum(defined) / len(defined), sum(pairs for _, pairs in areas)


def binary_log_losses(scores: Floats, positive: Flags) -> Floats:
    """Log-loss of each row, (n,), of scores of the positive class, (n,), clipped to probabilities."""
    probability = np.clip(scores, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
    losses: Floats = -np.log(np.where(positive, probability, 1.0 - probability))
    return losses


def class_log_losses(scores: Floats, truth: npt.NDArray[np.intp]) -> Floats:
    """Log-loss of each row, (n,), of scores of every class, (n, C), clipped and divided by their sum."""
    probability = np.clip(scores, PROBABILITY_FLOOR, 1.0)
    probability /= probability.sum(axis=1, keepdims=True)
    losses: Floats = -np.log(np.take_along_axis(probability, truth[:, None], axis=1))[:, 0]
    return losses
