"""Tests of `kernfed.methods.heads.tensors.fitting`: the minimiser of a head whose rows are in one place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from kernfed.methods.heads.messages import HeadLoss
from kernfed.methods.heads.tensors.fitting import fit
from kernfed.methods.heads.tensors.losses import Head


def squared(unit: float = 1.0, constant: float = 0.0, rows: int = 40, columns: int = 6, ridge: float = 1e-3) -> Head:
    """A regression head with a free bias, its targets in some unit and beside a constant."""
    random = np.random.default_rng(4)
    z = np.hstack([random.normal(size=(rows, columns)), np.ones((rows, 1))])
    y = unit * (z[:, :1] + np.sin(z[:, 1:2]) + 0.3 * random.normal(size=(rows, 1))) + constant
    return Head(HeadLoss.SQUARED, torch.from_numpy(z), torch.from_numpy(y), ridge, free_bias=True)


def residual(head: Head, weights: Tensor) -> float:
    """Largest component of the gradient, of that at zero weights."""
    return float(head.gradient(weights).abs().max() / head.gradient(torch.zeros_like(weights)).abs().max())


@pytest.mark.parametrize("shape", [(40, 6), (20, 60)])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_squared_head_is_exact_in_any_unit(unit: float, shape: tuple[int, int]) -> None:
    """Also with fewer rows than features: no tolerance in the units of the targets stops it short."""
    head = squared(unit, rows=shape[0], columns=shape[1])
    assert residual(head, fit(head)) < 1e-10


def test_a_constant_is_taken_by_the_bias() -> None:
    """All other weights stay to the last digits."""
    here, there = fit(squared()), fit(squared(constant=140.0))
    torch.testing.assert_close(there[:-1], here[:-1], rtol=1e-10, atol=1e-12)
    assert float(there[-1] - here[-1]) == pytest.approx(140.0, abs=1e-10)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_steps_by_gradients_stop_by_the_targets_size(unit: float) -> None:
    """Where no matrix may be factored, the same is found up to the tolerance."""
    head = squared(unit)
    assert residual(head, fit(head, max_bytes=0, tolerance=1e-8)) < 1e-7


def test_a_singular_problem_is_not_refused() -> None:
    """Without a ridge and with a feature that comes twice, the least F is found all the same."""
    head = squared(ridge=0.0)
    head = Head(head.loss, torch.cat([head.z[:, :1], head.z], dim=1), head.y, 0.0, free_bias=True)
    assert residual(head, fit(head)) < 1e-5
