"""How far weights are from the minimum of a strongly convex objective, by its gradient there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats

_ROUNDING = 1e-3
"""Relative, of energies whose weights travel in float32."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """Between which numbers a distance lies."""

    least: float
    most: float


def quadratic_distance(
    weights: Floats, gradient: Floats, ridge: float, *, energy: float | None = None, largest: float = math.inf
) -> Bracket:
    """Bracket |W - W*|_H / |W|_H of F(W) = tr W'H W / 2 - tr W'c, whose minimum is at W*.

    The gradient is G = H (W - W*), so that |W - W*|_H² = tr G'H⁻¹ G. With eigenvalues of H from `ridge` to `largest` it
    is at most |G|²/ridge and at least |G|²/largest; by Cauchy and Schwarz it is at least ⟨G, W⟩²/|W|_H².

    Args:
        weights: W, shape (M, C).
        gradient: G, of the same shape.
        ridge: Above 0.
        energy: |W|_H² = tr W'H W; None: not known, and eigenvalues bound it.
        largest: Infinity: nothing is known.
    """
    size, slope = float(np.linalg.norm(weights)), float(np.linalg.norm(gradient))
    if slope == 0.0:
        return Bracket(0.0, 0.0)
    if size == 0.0:
        return Bracket(0.0, math.inf)
    low = max(ridge * size**2, min(energy or 0.0, largest * size**2))
    most = slope / math.sqrt(ridge * low)
    high = largest * size**2 if energy is None else low
    least = max(slope / math.sqrt(largest * high), abs(float(np.vdot(gradient, weights))) / high)
    return Bracket(min(least, most), most)


def not_an_energy(weights: Floats, energy: float, ridge: float) -> Iterator[str]:
    """Say why a number cannot be tr W'H W of an H with eigenvalues of at least `ridge`.

    Args:
        weights: W, shape (M, C).
        energy: The number.
        ridge: Of H.
    """
    if energy < (1.0 - _ROUNDING) * ridge * float(np.vdot(weights, weights)):
        yield "states a norm of the weights that is smaller than the ridge makes it"
