"""Bregman divergences between density ratios, and the non-negative objective that holds them from running away.

r(x) = Σ_l p_l^te(x) / p^tr(x) over K test distributions. f is convex; l1(z) = f'(z) z - f(z).

    S = mean_tr l1(r) - C Σ_l mean_te,l l1(r)      tail = Σ_l mean_te,l [C l1(r) - f'(r)]

S + tail is the plain divergence up to a constant, whatever C is. Flexible models let S fall without bound on the rows
they were fitted to, which is below what any ratio can reach where C < 1/sup r; ReLU(S) + tail stops that.

Source: the FTW-ERM paper (`kernfed.methods.reweight.ratio_spec`), equation (3.2), Table 4 and Algorithm 1. The
regulariser in the else branch of Algorithm 1 is printed with the wrong sign: here both branches descend on +(λ/2) Λ.
n^te counts a client's test points, so sums over clients are K times the pool's mean where all gave as many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernfed.errors import NumericalError
from kernfed.methods.reweight.ratio_spec import Divergence


@dataclass(frozen=True, slots=True)
class Objective:
    """The parts of (3.2) at a ratio, scalars that carry gradients."""

    s: Tensor
    tail: Tensor

    @property
    def value(self) -> Tensor:
        """ReLU(S) + tail."""
        return torch.relu(self.s) + self.tail

    @property
    def plain(self) -> Tensor:
        """S + tail, which does not depend on C."""
        return self.s + self.tail

    @property
    def loss(self) -> Tensor:
        """The objective of Algorithm 1's descent: S + tail while S >= 0, else -S alone, which lifts S again."""
        return self.plain if float(self.s.detach()) >= 0.0 else -self.s


@dataclass(frozen=True, slots=True)
class Bregman:
    """f of Table 4 with its derivatives."""

    divergence: Divergence
    power: float = 1.0
    """a of `robust`."""
    scale: float = 1.0
    """C of `pu`, which multiplies its f."""
    lsif_constant: bool = True
    """Whether l1 of `lsif` is (z² - 1)/2 (the definition) or z²/2 (the paper's own formulas)."""

    def f(self, z: Tensor) -> Tensor:
        """Compute f, elementwise."""
        match self.divergence:
            case Divergence.LSIF:
                return (z - 1.0).square() / 2.0
            case Divergence.UKL:
                return z * z.log() - z
            case Divergence.LOGISTIC:
                return z * z.log() - (z + 1.0) * (z + 1.0).log()
            case Divergence.PU:
                return self.scale * (torch.log1p(-z) + z * (z.log() - torch.log1p(-z)))
            case Divergence.ROBUST:
                return (z ** (self.power + 1.0) - z) / self.power

    def slope(self, z: Tensor) -> Tensor:
        """Compute f', elementwise."""
        match self.divergence:
            case Divergence.LSIF:
                return z - 1.0
            case Divergence.UKL:
                return z.log()
            case Divergence.LOGISTIC:
                return z.log() - (z + 1.0).log()
            case Divergence.PU:
                return self.scale * (z.log() - torch.log1p(-z))
            case Divergence.ROBUST:
                return ((self.power + 1.0) * z**self.power - 1.0) / self.power

    def l1(self, z: Tensor) -> Tensor:
        """Compute f'(z) z - f(z), elementwise, in the form that cancels nothing."""
        match self.divergence:
            case Divergence.LSIF:
                return (z.square() - 1.0) / 2.0 if self.lsif_constant else z.square() / 2.0
            case Divergence.UKL:
                return z
            case Divergence.LOGISTIC:
                return torch.log1p(z)
            case Divergence.PU:
                return -self.scale * torch.log1p(-z)
            case Divergence.ROBUST:
                return z ** (self.power + 1.0)

    def objective(self, train: Tensor, test: Tensor, test_weights: Tensor, c: float) -> Objective:
        """Compute S and tail.

        Args:
            train: Ratios at training rows, shape (n,).
            test: Ratios at test points of all clients, shape (m,).
            test_weights: 1/n_l^te for each test point, shape (m,), so that they sum to K.
            c: C, below 1/sup r; 0 for the plain divergence.

        Raises:
            NumericalError: A ratio is outside the range of f.
        """
        self.check(train)
        self.check(test)
        l1 = self.l1(test)
        s = self.l1(train).mean() - c * (test_weights * l1).sum()
        return Objective(s, (test_weights * (c * l1 - self.slope(test))).sum())

    def check(self, z: Tensor) -> None:
        """Refuse ratios that f is not defined at.

        Raises:
            NumericalError: One is not finite, or outside the range.
        """
        top = 1.0 if self.divergence is Divergence.PU else float("inf")
        low = -float("inf") if self.divergence is Divergence.LSIF else 0.0
        values = z.detach()
        if not bool(torch.isfinite(values).all()) or not bool(((values > low) & (values < top)).all()):
            raise NumericalError(
                f"a density ratio of {self.divergence} lies outside ({low:g}, {top:g}); lower the learning rate of the "
                "ratios, or standardise the columns"
            )
