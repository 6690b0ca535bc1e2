"""Which kernels a client sends in a round: bins of at most M, sorted by weight, one of them drawn.

Source: Ghari & Shen (2022), Algorithm 1 and equation (8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats, Indices


@dataclass(frozen=True, slots=True)
class Drawn:
    """A bin."""

    kernels: Indices
    """Numbers of its kernels, best first, shape (B,) with B ≤ M."""
    probability: float
    """With which it was drawn, at least exploration/m."""


def num_bins(num_kernels: int, bin_size: int) -> int:
    """Bins m = ⌈N/M⌉."""
    return math.ceil(num_kernels / bin_size)


def bins(ranking: Floats, bin_size: int) -> list[Indices]:
    """Split kernels into bins of `bin_size`, best first; ties by number.

    Args:
        ranking: Shape (N,), least is best: e.g. the negative log-weights.
        bin_size: M, at least 1.

    Returns:
        Numbers of the kernels in each of the ⌈N/M⌉ bins.
    """
    order = np.argsort(ranking, kind="stable")
    return [order[i : i + bin_size] for i in range(0, len(order), bin_size)]


def bin_probabilities(weights: Floats, parts: list[Indices], exploration: float) -> Floats:
    """Probability of each bin, equation (8): (1 - ξ) its weight + ξ/m, shape (m,).

    Args:
        weights: On the simplex, shape (N,).
        parts: The bins.
        exploration: ξ in (0, 1]; 1: every bin alike.
    """
    m = len(parts)
    mass = np.array([weights[part].sum() for part in parts])
    mass /= mass.sum()
    q: Floats = (1.0 - exploration) * mass + exploration / m
    return q


def draw_bin(weights: Floats, ranking: Floats, bin_size: int, exploration: float, uniform: float) -> Drawn:
    """Draw a bin: the first whose cumulated probability exceeds `uniform`.

    Args:
        weights: After the update (7), on the simplex, shape (N,).
        ranking: As in `bins`.
        bin_size: M.
        exploration: ξ in (0, 1].
        uniform: Uniform in (0, 1).
    """
    if exploration >= 1.0:
        order, m = np.argsort(ranking, kind="stable"), num_bins(len(ranking), bin_size)
        j = min(int(uniform * m), m - 1)
        return Drawn(order[j * bin_size : (j + 1) * bin_size], 1.0 / m)
    parts = bins(ranking, bin_size)
    q = bin_probabilities(weights, parts, exploration)
    j = min(int(np.searchsorted(np.cumsum(q), uniform, side="right")), len(parts) - 1)
    return Drawn(parts[j], float(q[j]))
