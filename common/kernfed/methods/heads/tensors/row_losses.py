"""The losses of a head as functions of a row's scores, one class each.

n rows, C outputs. Scores s = W'z, predictions p and targets y have shape (n, C). Under every loss the gradient of a row
by its scores is p - y; `kernfed.methods.heads.losses.FACTS` names the link from s to p.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from kernfed.methods.heads.messages import HeadLoss


class RowLoss(Protocol):
    """A loss, with the Hessian of each row by its scores."""

    def total(self, scores: Tensor, y: Tensor) -> Tensor:
        """Compute the sum of the rows' losses, a scalar."""
        ...

    def curvature(self, p: Tensor) -> Tensor | None:
        """Compute the diagonals of the Hessians, shape (n, C); None: 1 at any scores."""
        ...

    def hessian_product(self, p: Tensor, u: Tensor) -> Tensor:
        """Compute each row's Hessian times its row of u, shape (n, C)."""
        ...


class Softmax:
    """Cross-entropy of softmax(s); the Hessian is diag(p) - pp'."""

    def total(self, scores: Tensor, y: Tensor) -> Tensor:
        """See `RowLoss`."""
        return (torch.logsumexp(scores, 1) * y.sum(1) - (scores * y).sum(1)).sum()

    def curvature(self, p: Tensor) -> Tensor:
        """See `RowLoss`."""
        return p * (1.0 - p)

    def hessian_product(self, p: Tensor, u: Tensor) -> Tensor:
        """See `RowLoss`."""
        return p * (u - (p * u).sum(1, keepdim=True))


class Logistic:
    """Cross-entropy of the positive class, one output; the Hessian is p(1 - p)."""

    def total(self, scores: Tensor, y: Tensor) -> Tensor:
        """See `RowLoss`."""
        return (torch.logaddexp(scores, torch.zeros_like(scores)) - scores * y).sum()

    def curvature(self, p: Tensor) -> Tensor:
        """See `RowLoss`."""
        return p * (1.0 - p)

    def hessian_product(self, p: Tensor, u: Tensor) -> Tensor:
        """See `RowLoss`."""
        return p * (1.0 - p) * u


class Squared:
    """|s - y|²/2; the Hessian is the identity."""

    def total(self, scores: Tensor, y: Tensor) -> Tensor:
        """See `RowLoss`."""
        return 0.5 * (scores - y).square().sum()

    def curvature(self, p: Tensor) -> None:
        """See `RowLoss`."""

    def hessian_product(self, p: Tensor, u: Tensor) -> Tensor:
        """See `RowLoss`."""
        return u


ROW_LOSSES: Mapping[HeadLoss, RowLoss] = {
    HeadLoss.SOFTMAX: Softmax(),
    HeadLoss.LOGISTIC: Logistic(),
    HeadLoss.SQUARED: Squared(),
}
