"""How well scores put positive rows before negative ones: AUC and average precision, with standard errors by groups."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Flags, Floats, Indices, Integers
from kernfed.maths.scores.estimate import Estimate, num_groups, small_sample
from kernfed.rng import Stream

RESAMPLES = 200
"""Of groups, by which the error of an average precision is found."""
_FEWEST = 50
_NUMBERS = 10_000_000
"""Rows times resamples: of more rows there are fewer resamples, which need less time, down to `_FEWEST`."""
_AT_ONCE = 2_000_000
"""Numbers of the resamples that are computed together."""


def auc_of(scores: Floats, positive: Flags, group: Integers) -> Estimate | None:
    """Area under the ROC curve; None where a class has rows of fewer than two groups.

    Each row's influence is DeLong's placement among the rows of the other class, less the area, over its own class's
    rows. Without groups the variance is DeLong's. With groups it is Obuchowski's but for the factor of its mixed term,
    which is here the root of the product of the other two.

    Args:
        scores: (n,).
        positive: Whether each row is of the positive class, (n,).
        group: Number of each row's group, (n,), from 0.

    Source: DeLong, DeLong & Clarke-Pearson (1988), equations 3 to 5; Obuchowski (1997).
    """
    groups = num_groups(group, positive), num_groups(group, ~positive)
    if min(groups) < 2:
        return None
    num, rest = int(positive.sum()), int((~positive).sum())
    ordered = np.sort(scores[~positive]), np.sort(scores[positive])
    below, up_to = (np.searchsorted(ordered[0], scores[positive], side=side) for side in ("left", "right"))
    placed = (below + up_to) / (2.0 * rest)  # of each positive row: negative ones below it, ties one half
    below, up_to = (np.searchsorted(ordered[1], scores[~positive], side=side) for side in ("left", "right"))
    passed = 1.0 - (below + up_to) / (2.0 * num)  # of each negative row: positive ones above it
    area = float(placed.mean())
    influence = np.empty(len(scores))
    influence[positive] = (placed - area) * (small_sample(groups[0]) / num)
    influence[~positive] = (passed - area) * (small_sample(groups[1]) / rest)
    return Estimate(area, influence, min(num, rest))


def average_precision(scores: Floats, positive: Flags, weights: Floats | None = None) -> float:
    """Mean of the precision at each positive row, rows of equal scores together.

    Args:
        scores: (n,).
        positive: Whether each row is of the positive class, (n,); at least one is.
        weights: How often each row counts, (n,); unset: once.
    """
    order, last = _places(scores)
    counted = np.ones(len(scores)) if weights is None else weights[order]
    return float(_precisions(positive[order], last, counted[None])[0])


def average_precision_error(scores: Floats, positive: Flags, group: Integers, draw: Stream) -> float:
    """Standard error of `average_precision`: the deviation over resamples of whole groups.

    A resample without a positive row is passed over.

    Args:
        scores: (n,).
        positive: (n,).
        group: Number of each row's group, (n,), from 0.
        draw: Of the resamples.
    """
    num, groups = len(scores), int(group.max()) + 1
    order, last = _places(scores)
    positive, group = positive[order], group[order]
    wanted = max(_FEWEST, min(RESAMPLES, _NUMBERS // num))
    found: list[Floats] = []
    for start in range(0, wanted, at_once := max(1, _AT_ONCE // num)):
        times = min(at_once, wanted - start)
        drawn = draw.integers(groups, times * groups) + np.repeat(groups * np.arange(times), groups)
        weights = np.bincount(drawn, minlength=times * groups).reshape(times, groups)[:, group].astype(np.float64)
        found.append(_precisions(positive, last, weights[weights @ positive > 0]))
    every = np.concatenate(found)
    return float(every.std(ddof=1)) if len(every) > 1 else 0.0


def _places(scores: Floats) -> tuple[Indices, Indices]:
    """Rows in the order of falling scores, (n,), and the place of the last one of each run of equal scores."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    return order, np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))


def _precisions(positive: Flags, last: Indices, weights: Floats) -> Floats:
    """Average precision by weights of the rows, (B, n) -> (B,); rows in the order of falling scores."""
    rows = np.cumsum(weights, axis=1)[:, last]
    hits = np.cumsum(weights * positive, axis=1)[:, last]
    precision = np.divide(hits, rows, out=np.zeros_like(hits), where=rows > 0)
    gained = np.diff(hits, axis=1, prepend=0.0)
    found: Floats = (precision * gained).sum(axis=1) / hits[:, -1]
    return found
