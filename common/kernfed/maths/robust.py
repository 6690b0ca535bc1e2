"""Means of updates that one client alone cannot move at will: coordinate-wise median, trimmed mean, norm bound.

Sources: Yin, Chen, Ramchandran & Bartlett (2018), Byzantine-robust distributed learning, Definitions 1 and 2; Sun,
Kairouz, Suresh & McMahan (2019), Can you really backdoor federated learning?, section 5 (norm thresholding).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.aggregate import SLICE, combine_arrays, norm

AggregateName = Literal["mean", "median", "trimmed"]

FAR = 1e3
"""An update so many times as long as the others' comes from a fault or a foe."""


@dataclass(frozen=True, slots=True)
class MeanRule:
    """How one update is made of those of all clients."""

    aggregate: AggregateName = "mean"
    trim: float = 0.2
    """Part of the clients that a trimmed mean leaves out at either end of each coordinate."""
    max_norm: float | None = None
    """No update counts with more than so many times the median norm."""

    @property
    def plain(self) -> bool:
        """Whether it is the weighted mean and no more."""
        return self.aggregate == "mean" and self.max_norm is None

    @property
    def alike(self) -> bool:
        """Whether all clients count the same, whatever their weights."""
        return self.aggregate != "mean"

    def num_trimmed(self, num_clients: int) -> int:
        """Clients left out at either end: the part rounded up, but one stays, or two of an even number."""
        return min(math.ceil(self.trim * num_clients - 1e-9), (num_clients - 1) // 2)


def combined(arrays: Sequence[Array], rule: MeanRule) -> Floats:
    """Coordinate-wise median, or mean without the largest and the smallest numbers, of arrays of one shape.

    Args:
        arrays: One of each client; may be memory-mapped.
        rule: `median` or `trimmed`.
    """
    cut = rule.num_trimmed(len(arrays))

    def trimmed(piece: Floats) -> Floats:
        kept: Floats = np.sort(piece, axis=0)[cut : len(arrays) - cut].mean(axis=0)
        return kept

    def middle(piece: Floats) -> Floats:
        found: Floats = np.median(piece, axis=0)
        return found

    return _by_slices(arrays, middle if rule.aggregate == "median" else trimmed)


def bounded_factors(arrays: Sequence[Array], before: Array, times: float) -> list[float]:
    """By what each update is multiplied: min(1, times · m / |W_j - W|), m the median of these norms.

    Of an even number of clients m is the lower of the middle two, so that of two clients the smaller one says it.

    Args:
        arrays: W_j of each client.
        before: W, from which they began.
        times: Of the median norm.
    """
    sizes = [norm(np.subtract(array, before, dtype=np.float64)) for array in arrays]
    limit = times * sorted(sizes)[(len(sizes) - 1) // 2]
    return [min(1.0, limit / size) if size > 0 else 1.0 for size in sizes]


def bounded_mean(arrays: Sequence[Array], before: Array, weights: Sequence[float], factors: Sequence[float]) -> Floats:
    """W + Σ p_j f_j (W_j - W).

    Args:
        arrays: W_j of each client.
        before: W.
        weights: p_j, up to their sum.
        factors: f_j.
    """
    whole = sum(weights)
    parts = [w / whole * f for w, f in zip(weights, factors, strict=True)]
    return combine_arrays([*arrays, before], [*parts, 1.0 - sum(parts)])


def far_beyond(sizes: Mapping[str, float], floor: float, times: float = FAR) -> list[str]:
    """Names whose size is beyond `floor` and beyond `times` the median of the others' sizes.

    The median, so that a part of the others that is below half of them covers nobody; the floor, so that nobody is left
    out for what does little. One alone is measured by `times` the floor.

    Args:
        sizes: By name, at least 0.
        floor: Above 0.
        times: At least 1.
    """
    found = []
    for name, size in sizes.items():
        others = [other for n, other in sizes.items() if n != name]
        if size > max(floor, times * (statistics.median(others) if others else floor)):
            found.append(name)
    return found


def _by_slices(arrays: Sequence[Array], make: Callable[[Floats], Floats]) -> Floats:
    out = np.empty(arrays[0].shape, dtype=np.float64)
    flat, sources = out.reshape(-1), [a.reshape(-1) for a in arrays]
    for start in range(0, flat.size, SLICE):
        piece = np.array([source[start : start + SLICE] for source in sources], dtype=np.float64)
        flat[start : start + SLICE] = make(piece)
    return out
