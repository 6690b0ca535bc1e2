"""Theorem 2: where importance weighting cannot be worse than none, by eigenvalues of training and test rows.

Source: Ramezani-Kebrya and others (2023), Theorem 2 and Remark 3, whose proof is for rows that are unit vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats

NUM_VALUES = 50
"""Eigenvalues that are compared."""
_NOISE = 1e-6
"""Of the largest eigenvalue of the training rows; below it rounding, and chance, decide."""


@dataclass(frozen=True, slots=True)
class EigenvalueCondition:
    """How a client's eigenvalues lie to the bound."""

    directions: int
    """Eigenvalues that were compared."""
    within: int
    """Those that meet the condition."""
    greatest: float
    """Greatest sqrt(λ'/λ) over its bound: the condition holds for all where it is below 1."""
    place: int
    """Place of that one, from 1 on."""

    @property
    def holds(self) -> bool:
        """Whether all meet it."""
        return self.within == self.directions


def eigenvalue_condition(train: Floats, test: Floats, ridge: float) -> EigenvalueCondition | None:
    """Compare sqrt(λ'_i/λ_i) with (1 + sqrt(1 + 4 ξ_i))/2, where ξ_i = λ/(λ + μ_i), i-th largest by i-th largest.

    Args:
        train: λ_i, falling, of Σ x x'/n over training rows; μ_i is n times that.
        test: λ'_i, falling.
        ridge: Of the mean loss, half of |W|²; the paper's λ is n times that.

    Returns:
        None: the training rows have no eigenvalue above 0.
    """
    num = int((train > _NOISE * train[0]).sum()) if len(train) and train[0] > 0.0 else 0
    if not num:
        return None
    xi = ridge / (ridge + train[:num])
    share = np.sqrt(test[:num] / train[:num]) / ((1.0 + np.sqrt(1.0 + 4.0 * xi)) / 2.0)
    worst = int(share.argmax())
    return EigenvalueCondition(num, int((share < 1.0).sum()), float(share[worst]), worst + 1)
