"""One client's ridge problem with an intercept of its own, which the ridge does not count.

F(b, W) = |1 b + Z W - Y|²/(2 n) + (ridge/2) |W|². With the constant 1 as the first input its Hessian is

    H = [[1, m'], [m, Z'Z/n + ridge I]],  m the mean of the rows of Z,

and the Schur complement of the 1 is S = (Z - m)'(Z - m)/n + ridge I: the Hessian of centred rows. So H is positive
definite for every ridge above 0, and one factor of S serves solves with H. M features, C outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.tensors.ridge import LocalRidge
from kernfed.tensors.rows import FeatureRows, KeptRows, mean_of


class AffineRidge:
    """The ridge problem of one client's rows, whose weights have the intercept in their first row."""

    def __init__(self, z: Tensor | FeatureRows, y: Tensor, ridge: float) -> None:
        """Take the rows of a problem; features are centred in a copy, or when they are read.

        Args:
            z: Features, shape (n, M), or what gives them; n at least 1.
            y: Targets, shape (n, C), of the type and device of `z`.
            ridge: Above 0.

        Raises:
            DataError: Rows of features and targets do not pair up.
            NumericalError: The ridge is not above 0.
        """
        rows: FeatureRows = KeptRows(z) if isinstance(z, Tensor) else z
        mean = mean_of(rows)
        self._mean = mean[:, None]
        self._target_mean = y.mean(dim=0)[None]
        self._centred = LocalRidge(rows.minus(mean), y - self._target_mean, ridge)

    def moment(self) -> Tensor:
        """Compute c = [1, Z]'Y/n, shape (1 + M, C)."""
        return torch.cat([self._target_mean, self._centred.moment() + self._mean @ self._target_mean])

    def solve(self) -> Tensor:
        """Compute the minimiser H⁻¹ c, shape (1 + M, C)."""
        w = self._centred.solve()
        return torch.cat([self._target_mean - self._mean.T @ w, w])

    def newton_step(self, g: Tensor) -> Tensor:
        """Compute H⁻¹ G for G of shape (1 + M, C)."""
        w = self._centred.newton_step(g[1:] - self._mean @ g[:1])
        return torch.cat([g[:1] - self._mean.T @ w, w])

    def hessian_product(self, v: Tensor) -> Tensor:
        """Compute H V for V of shape (1 + M, C)."""
        first = v[:1] + self._mean.T @ v[1:]
        return torch.cat([first, self._centred.hessian_product(v[1:]) + self._mean @ first])
