"""Tests of `kernfed.methods.heads.tensors.row_losses`: the Hessian of a row, held against automatic differentiation."""

from __future__ import annotations

import pytest
import torch

from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.messages import HeadLoss
from kernfed.methods.heads.tensors.row_losses import ROW_LOSSES
from kernfed.tensors.links import linked


@pytest.mark.parametrize("loss", HeadLoss)
def test_curvature_is_the_second_derivative(loss: HeadLoss) -> None:
    """Gradient p - y, Hessian times a vector, its diagonal, and whether it couples outputs, are those of autograd."""
    facts, row = FACTS[loss], ROW_LOSSES[loss]
    num = 1 if facts.one_output else 3
    generator = torch.Generator().manual_seed(0)
    scores, u = (torch.randn(1, num, dtype=torch.float64, generator=generator) for _ in range(2))
    y = torch.zeros(1, num, dtype=torch.float64)
    y[0, 0] = 1.0
    p = linked(facts.link, scores)
    gradient = torch.autograd.functional.jacobian(lambda s: row.total(s, y), scores)
    torch.testing.assert_close(gradient, p - y)
    hessian = torch.autograd.functional.hessian(lambda s: row.total(s, y), scores)[0, :, 0, :]
    torch.testing.assert_close(row.hessian_product(p, u), u @ hessian)
    diagonal = row.curvature(p)
    torch.testing.assert_close(torch.ones_like(p) if diagonal is None else diagonal, hessian.diagonal()[None])
    assert facts.couples_outputs == bool((hessian - hessian.diagonal().diag()).abs().max() > 1e-12)
