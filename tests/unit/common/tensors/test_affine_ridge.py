"""Tests of `kernfed.tensors.affine_ridge`: an intercept that the ridge does not count."""

from __future__ import annotations

import pytest
import torch

from kernfed.tensors.affine_ridge import AffineRidge

RIDGE = 0.03


@pytest.mark.parametrize(("n", "m"), [(40, 6), (6, 40), (1, 4)])
def test_solves_and_products_are_those_of_the_matrix_with_a_constant(n: int, m: int) -> None:
    """With many rows, few, and one: H, its inverse, the moment and the solution from their definitions."""
    draw = torch.Generator().manual_seed(3)
    z = torch.randn(n, m, generator=draw, dtype=torch.float64) + 2.0
    y = torch.randn(n, 2, generator=draw, dtype=torch.float64) - 5.0
    inputs = torch.cat([torch.ones(n, 1, dtype=torch.float64), z], dim=1)
    counted = torch.eye(1 + m, dtype=torch.float64)
    counted[0, 0] = 0.0
    hessian, moment = inputs.T @ inputs / n + RIDGE * counted, inputs.T @ y / n
    found = AffineRidge(z, y, RIDGE)
    g = torch.randn(1 + m, 3, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(found.moment(), moment, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.hessian_product(g), hessian @ g, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.newton_step(g), torch.linalg.solve(hessian, g), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.solve(), torch.linalg.solve(hessian, moment), rtol=1e-9, atol=1e-9)
