"""The losses of a head as functions of a row's scores, one object each.

n rows, C outputs. Scores s = W'z, predictions p and targets y have shape (n, C). Under every loss the gradient of a row
by its scores is p - y; `kernfed.methods.heads.losses.FACTS` names the link from s to p.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernfed.methods.heads.messages import HeadLoss


@dataclass(frozen=True, slots=True)
class RowLoss:
    """A loss, with the Hessian of each row by its scores."""

    total: Callable[[Tensor, Tensor], Tensor]
    """Sum of the rows' losses, a scalar, of s and y."""
    curvature: Callable[[Tensor], Tensor | None]
    """Diagonals of the Hessians at p, shape (n, C); None: 1 at any scores."""
    hessian_product: Callable[[Tensor, Tensor], Tensor]
    """Each row's Hessian at p times its row of u, shape (n, C)."""


ROW_LOSSES: Mapping[HeadLoss, RowLoss] = {
    HeadLoss.SOFTMAX: RowLoss(
        total=lambda s, y: (torch.logsumexp(s, 1) * y.sum(1) - (s * y).sum(1)).sum(),
        curvature=lambda p: p * (1.0 - p),
        hessian_product=lambda p, u: p * (u - (p * u).sum(1, keepdim=True)),
    ),
    HeadLoss.LOGISTIC: RowLoss(
        total=lambda s, y: (torch.logaddexp(s, torch.zeros_like(s)) - s * y).sum(),
        curvature=lambda p: p * (1.0 - p),
        hessian_product=lambda p, u: p * (1.0 - p) * u,
    ),
    HeadLoss.SQUARED: RowLoss(
        total=lambda s, y: 0.5 * (s - y).square().sum(),
        curvature=lambda p: None,
        hessian_product=lambda p, u: u,
    ),
}
