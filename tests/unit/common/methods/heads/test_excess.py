"""Tests of `kernfed.methods.heads.excess`: how far a head's loss is above its least."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernfed.methods.heads.excess import excess
from kernfed.methods.heads.messages import HeadLoss
from kernfed.methods.heads.tensors.fitting import fit
from kernfed.methods.heads.tensors.losses import Head

LOSSES = (HeadLoss.SOFTMAX, HeadLoss.LOGISTIC, HeadLoss.SQUARED)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("free_bias", [False, True])
def test_the_loss_is_no_further_above_its_least(loss: HeadLoss, free_bias: bool) -> None:
    """Near the minimum too, where the part of a free bias is an estimate."""
    random = np.random.default_rng(4)
    z = np.hstack([random.normal(size=(60, 4)), np.ones((60, 1))])
    z[:, :4] -= z[:, :4].mean(axis=0)
    label = random.choice(3, size=60, p=[0.6, 0.3, 0.1])
    y = np.eye(3)[label] if loss is HeadLoss.SOFTMAX else (label == 0).astype(np.float64)[:, None]
    head = Head(loss, torch.as_tensor(z), torch.as_tensor(y), 0.05, free_bias)
    best = fit(head, tolerance=1e-10)
    least = head.value_and_gradient(best)[0]
    for size in (0.3, 0.03, 0.003):
        at = best + size * torch.as_tensor(random.normal(size=tuple(best.shape)))
        value, gradient = head.value_and_gradient(at)
        most = excess(gradient.numpy(), 0.05, loss, y.mean(axis=0) if free_bias else None)
        assert value - least <= 1.05 * most
        assert most <= 60.0 * (value - least)
