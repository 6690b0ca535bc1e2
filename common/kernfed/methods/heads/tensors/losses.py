"""A linear head on frozen features: losses, gradients, and Hessian-vector products; softmax, logistic or squared.

F(W) = (1/n) Σ_i loss(W'z_i + o, y_i) + (ridge/2) |W|² over n rows of D features, with C outputs and an offset o. A bias
is a last feature that is 1. A free bias is in no |W|², but for the mean of the biases of softmax, on which no
prediction depends. So F has one minimiser on rows of all classes. Everything keeps the type and device of Z.

Source: FedNewton paper, Section 3.1 and equation (11).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from kernfed.errors import DataError, NumericalError
from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.messages import HeadLoss
from kernfed.methods.heads.tensors.row_losses import ROW_LOSSES
from kernfed.tensors.links import linked


@dataclass(frozen=True, slots=True)
class HeadHessian:
    """∇²F at some W, plus `damping` times the identity; symmetric positive semidefinite, and never formed.

    Per row, with probabilities p: softmax diag(p) - pp', logistic p(1 - p), squared I, each Kronecker zz'.
    """

    loss: HeadLoss
    z: Tensor = field(repr=False)
    """Features, shape (n, D)."""
    p: Tensor = field(repr=False)
    """Probabilities at W, shape (n, C); scores for the squared loss, which does not use them."""
    y: Tensor = field(repr=False)
    """Targets, shape (n, C)."""
    shift: float
    """Ridge and damping, which are added to the diagonal."""
    freed: float = 0.0
    """The part of `shift`, a ridge, that the row of a free bias does without; 0 where the bias is like the others."""

    @property
    def bias_mean_ridge(self) -> float:
        """Curvature along the mean of a free bias's outputs, which softmax itself does not have."""
        return self.freed if FACTS[self.loss].couples_outputs else 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """(D, C), of what the Hessian multiplies."""
        return self.z.shape[1], self.p.shape[1]

    def with_damping(self, damping: float) -> HeadHessian:
        """The same Hessian with more on its diagonal."""
        return replace(self, shift=self.shift + damping)

    def product(self, v: Tensor) -> Tensor:
        """Compute H V, shape (D, C), for V of that shape: two products with Z."""
        u = ROW_LOSSES[self.loss].hessian_product(self.p, self.z @ v)
        product = torch.addmm(v, self.z.T, u, beta=self.shift, alpha=self._per_row)
        if self.freed:
            product[-1].sub_(v[-1] * self.freed - v[-1].mean() * self.bias_mean_ridge)
        return product

    def diagonal(self) -> Tensor:
        """Compute the diagonal of H, shape (D, C)."""
        curvature = self.row_curvature()
        if curvature is None:
            column = self.z.square().sum(0) * self._per_row + self.shift
            return self._without_freed(column[:, None].expand(*self.shape).contiguous())
        return self._without_freed(self.z.square().T @ curvature * self._per_row + self.shift)

    def fisher_diagonal(self) -> Tensor:
        """Compute the mean of squared per-row gradients plus the shift, shape (D, C).

        It is not the Hessian's diagonal, and goes to the shift where the fit is perfect.

        Source: FedNewton paper, equation (12).
        """
        return self._without_freed(self.z.square().T @ (self.p - self.y).square() * self._per_row + self.shift)

    def mean_diagonal(self) -> float:
        """Compute the mean of the diagonal of H without ridge and damping: the curvature that the rows give."""
        squares = self.z.square().sum(1)
        curvature = self.row_curvature()
        per_row = squares * (self.shape[1] if curvature is None else curvature.sum(1))
        return float(per_row.sum()) * self._per_row / (self.shape[0] * self.shape[1])

    def row_curvature(self) -> Tensor | None:
        """The diagonals of the rows' Hessians by their scores, shape (n, C); None: 1 for every row and output."""
        return ROW_LOSSES[self.loss].curvature(self.p)

    def _without_freed(self, diagonal: Tensor) -> Tensor:
        if self.freed:
            diagonal[-1].sub_(self.freed - self.bias_mean_ridge / self.shape[1])
        return diagonal

    @property
    def _per_row(self) -> float:
        return 1.0 / max(self.z.shape[0], 1)


@dataclass(frozen=True, slots=True)
class Head:
    """The problem of a head on some rows.

    Without rows F is the ridge alone.
    """

    loss: HeadLoss
    z: Tensor = field(repr=False)
    """Features, shape (n, D); the last is 1 where there is a bias."""
    y: Tensor = field(repr=False)
    """Targets, shape (n, C): one-hot, 0/1, or numbers."""
    ridge: float
    free_bias: bool = False
    """Whether the ridge leaves out the last feature."""
    offset: Tensor | None = field(default=None, repr=False)
    """Added to every row's scores, shape (C,)."""

    def __post_init__(self) -> None:
        """Check shapes.

        Raises:
            DataError: Rows differ in number, or the logistic loss has several outputs.
        """
        if self.z.ndim != 2 or self.y.ndim != 2 or len(self.z) != len(self.y):
            raise DataError(f"features {tuple(self.z.shape)} and targets {tuple(self.y.shape)} do not fit together")
        if FACTS[self.loss].one_output and self.y.shape[1] != 1:
            raise DataError(f"the {self.loss} loss has one output, not {self.y.shape[1]}; use softmax")

    @property
    def num_rows(self) -> int:
        """Rows n."""
        return len(self.z)

    def take(self, rows: Tensor) -> Head:
        """The same problem on some of the rows, by index."""
        return replace(self, z=self.z[rows], y=self.y[rows])

    def value(self, w: Tensor) -> float:
        """Compute F(W)."""
        return mean_loss(self.loss, self.scores(w), self.y) + self._penalty(w)

    def scores(self, w: Tensor) -> Tensor:
        """Compute W'z + o of every row, shape (n, C)."""
        s = self.z @ w
        return s if self.offset is None else s + self.offset

    def loss_and_slope(self, w: Tensor) -> tuple[float, float]:
        """Compute the mean loss L(W) and ⟨∇L(W), W⟩ over what the ridge shrinks, both without it; 0, 0 without rows."""
        s = self.scores(w)
        shrunk = self.z[:, :-1] @ w[:-1] if self.free_bias else self.z @ w
        slope = float(((probabilities(self.loss, s) - self.y) * shrunk).sum()) / max(self.num_rows, 1)
        return mean_loss(self.loss, s, self.y), slope

    def value_and_gradient(self, w: Tensor) -> tuple[float, Tensor]:
        """Compute F(W) and ∇F(W), shape (D, C).

        Raises:
            NumericalError: One of them is not finite.
        """
        s = self.scores(w)
        value = mean_loss(self.loss, s, self.y) + self._penalty(w)
        gradient = self._gradient(w, s)
        if not (value < float("inf") and bool(torch.isfinite(gradient).all())):
            raise NumericalError(
                "the head's loss or gradient left the range of numbers; lower the step size, or raise damping or ridge"
            )
        return value, gradient

    def gradient(self, w: Tensor) -> Tensor:
        """Compute ∇F(W), shape (D, C), unchecked: for steps that are checked together at their end."""
        return self._gradient(w, self.scores(w))

    def hessian(self, w: Tensor) -> HeadHessian:
        """∇²F at W, shape (D C, D C), as an operator."""
        freed = self.ridge if self.free_bias else 0.0
        return HeadHessian(self.loss, self.z, probabilities(self.loss, self.scores(w)), self.y, self.ridge, freed)

    def _gradient(self, w: Tensor, scores: Tensor) -> Tensor:
        residual = probabilities(self.loss, scores) - self.y
        gradient = torch.addmm(w, self.z.T, residual, beta=self.ridge, alpha=1.0 / max(self.num_rows, 1))
        if self.free_bias:
            gradient[-1].sub_(self.ridge * (w[-1] - self._bias_mean(w)))
        return gradient

    def _penalty(self, w: Tensor) -> float:
        if not self.free_bias:
            return 0.5 * self.ridge * float(w.square().sum())
        square = float(w[:-1].square().sum()) + w.shape[1] * float(self._bias_mean(w)) ** 2
        return 0.5 * self.ridge * square

    def _bias_mean(self, w: Tensor) -> Tensor:
        """The mean of the biases where predictions do not depend on it, else 0."""
        return w[-1].mean() if FACTS[self.loss].couples_outputs else w.new_zeros(())


def probabilities(loss: HeadLoss, scores: Tensor) -> Tensor:
    """Turn scores into predictions: softmax, logistic function, or the scores themselves; shape (n, C)."""
    return linked(FACTS[loss].link, scores)


def mean_loss(loss: HeadLoss, scores: Tensor, y: Tensor) -> float:
    """Compute the mean loss of rows, without a ridge; 0 without rows.

    Args:
        loss: Which.
        scores: Shape (n, C).
        y: Targets, shape (n, C).
    """
    n = len(scores)
    return float(ROW_LOSSES[loss].total(scores, y)) / n if n else 0.0
