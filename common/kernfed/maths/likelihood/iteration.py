"""Newton's method on a pooled likelihood: one point after another, halfway back where the deviance rose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernfed.arrays import Array, Floats

MOST_STEP = 2.0
"""Longest step of a coefficient, of a column scaled to deviation 1, where the link is not the identity."""
_ROSE = 1e-9
"""Part of the deviance that counts as rounding."""
_SLOW, _MOST_SLOW, _AT_REST = 0.5, 3, 1e-3
"""Steps that shrink by less than half, so many times, and are no rounding, walk to infinity."""
_GOOD, _PERFECT = 0.15, 0.02
"""Deviance of a row below which hardly anything is left to explain: with long steps, and with any."""
_PART = 0.2
"""A column is named where its step is at least this part of the longest."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The pooled sums at a point."""

    gradient: Floats
    """Of the log-likelihood, times the dispersion, over all rows, (K,)."""
    hessian: Floats
    """Of minus it, (K, K), positive definite."""
    deviance: float
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Iteration:
    """Where Newton's method stands."""

    coefficients: Floats
    """Where sums are asked for next, (K,)."""
    accepted: Floats
    """The last point whose deviance had not risen, (K,)."""
    deviance: float = math.inf
    """There."""
    longest: float = math.inf
    """Longest step of a coefficient from there."""
    num_slow: int = 0
    """Steps that hardly shrank, one after another, within a standard error of the end or of a perfect fit."""
    distance: float = math.inf
    """Length of the step from `coefficients`, in standard errors: about how far the solution is."""
    num_evaluated: int = 0

    @classmethod
    def at(cls, coefficients: Floats) -> Iteration:
        """Begin at some coefficients."""
        return cls(coefficients, coefficients)

    def anew(self) -> Iteration:
        """The same point where the rows are others, so that deviances do not compare."""
        return replace(self, deviance=math.inf, longest=math.inf, num_slow=0)

    def rose(self, sums: Sums) -> bool:
        """Whether the deviance rose on the way to `coefficients`."""
        return not sums.deviance <= self.deviance * (1.0 + _ROSE) + _ROSE

    def half_back(self) -> Iteration:
        """Try halfway between the last point and this one."""
        middle = (self.coefficients + self.accepted) / 2.0
        return replace(self, coefficients=middle, num_evaluated=self.num_evaluated + 1)

    def stepped(self, sums: Sums, *, dispersion: float, curved: bool) -> tuple[Iteration, Floats]:
        """The state with the next point, and the step to it; `distance` is that of the point before.

        Args:
            sums: At `coefficients`.
            dispersion: φ, by which squares of standard errors are larger.
            curved: Whether the link is another one than the identity, so that long steps mislead.
        """
        step: Floats = np.asarray(np.linalg.solve(sums.hessian, sums.gradient), dtype=np.float64)
        square = max(float(sums.gradient @ step), 0.0)
        distance = math.sqrt(square / dispersion) if dispersion > 0 else 0.0
        longest = float(np.abs(step).max())
        left = sums.deviance / max(sums.rows, 1)
        near = distance < 1.0 or left < _PERFECT or (left < _GOOD and longest > 2.0 * MOST_STEP)
        slow = near and longest > _AT_REST and longest > _SLOW * self.longest
        taken = step * min(1.0, MOST_STEP / longest) if curved and longest > 0 else step
        moved = Iteration(
            coefficients=self.coefficients + taken,
            accepted=self.coefficients,
            deviance=sums.deviance,
            longest=longest,
            num_slow=self.num_slow + 1 if slow else 0,
            distance=distance,
            num_evaluated=self.num_evaluated + 1,
        )
        return moved, step

    def infinite(self, step: Floats, names: Sequence[str]) -> tuple[str, ...]:
        """Names of coefficients that have no end, as where columns tell two classes apart; none: all have one.

        Args:
            step: The last one, (K,).
            names: Of the coefficients, K of them.
        """
        if self.num_slow < _MOST_SLOW:
            return ()
        size = np.abs(step)
        return tuple(name for name, one in zip(names, size, strict=True) if one >= _PART * size.max())

    def to_arrays(self) -> dict[str, Array]:
        """The state for a checkpoint."""
        numbers = [self.deviance, self.longest, float(self.num_slow), self.distance, float(self.num_evaluated)]
        return {"coefficients": self.coefficients, "accepted": self.accepted, "numbers": np.array(numbers)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Iteration:
        """Rebuild what `to_arrays` gave."""
        deviance, longest, num_slow, distance, evaluated = (float(v) for v in arrays["numbers"])
        return cls(
            arrays["coefficients"], arrays["accepted"], deviance, longest, int(num_slow), distance, int(evaluated)
        )
