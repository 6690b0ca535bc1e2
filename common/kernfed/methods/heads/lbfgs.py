"""L-BFGS with its history at the coordinator: curvature from what global gradients did, no system at any client.

numpy alone: the coordinator does not import torch.

Source: Nocedal (1980), the two-loop recursion; FedNewton paper, Appendix A.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats


@dataclass(frozen=True, slots=True)
class History:
    """Pairs of steps s and gradient differences y of the last rounds, oldest first, all with s'y > 0.

    The recursion is split, so that what stands between its loops may be anything positive definite, such as clients'
    Newton steps. Both gradients of a pair must be of the same rows.
    """

    limit: int
    """Most pairs kept."""
    steps: tuple[Floats, ...] = ()
    differences: tuple[Floats, ...] = ()

    def add(self, step: Floats, difference: Floats) -> History:
        """The history with one more pair; unchanged where s'y is not above 0, which would spoil definiteness."""
        if not float(np.vdot(step, difference)) > 0 or self.limit == 0:
            return self
        steps, differences = (*self.steps, step), (*self.differences, difference)
        return History(self.limit, steps[-self.limit :], differences[-self.limit :])

    def first_half(self, gradient: Floats) -> tuple[Floats, tuple[float, ...]]:
        """Run the first loop: q, and the coefficients for the second."""
        q = np.array(gradient, dtype=np.float64)
        found = []
        for s, y in zip(reversed(self.steps), reversed(self.differences), strict=True):
            a = float(np.vdot(s, q)) / float(np.vdot(s, y))
            q -= a * y
            found.append(a)
        return q, tuple(found)

    def second_half(self, r: Floats, coefficients: tuple[float, ...]) -> Floats:
        """Run the second loop: the direction, of which a multiple is to be subtracted."""
        d = np.array(r, dtype=np.float64)
        pairs = zip(self.steps, self.differences, reversed(coefficients), strict=True)
        for s, y, a in pairs:
            d += (a - float(np.vdot(y, d)) / float(np.vdot(s, y))) * s
        return d

    @property
    def scale(self) -> float | None:
        """Compute s'y / y'y of the newest pair, the usual initial inverse curvature; None without pairs."""
        if not self.steps:
            return None
        s, y = self.steps[-1], self.differences[-1]
        return float(np.vdot(s, y)) / float(np.vdot(y, y))

    def to_arrays(self, shape: tuple[int, ...]) -> dict[str, Floats]:
        """Pairs as two arrays of shape (pairs, *shape), for a checkpoint."""
        empty = np.empty((0, *shape))
        return {
            "history_steps": np.stack(self.steps) if self.steps else empty,
            "history_differences": np.stack(self.differences) if self.differences else empty,
        }

    @classmethod
    def from_arrays(cls, limit: int, arrays: Mapping[str, Floats]) -> History:
        """Rebuild what `to_arrays` gave."""
        return cls(limit, tuple(arrays["history_steps"]), tuple(arrays["history_differences"]))
