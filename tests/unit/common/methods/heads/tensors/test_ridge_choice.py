"""Tests of `kernfed.methods.heads.tensors.ridge_choice`: the ridge by rows kept apart, all rows in one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernfed.maths.folds import num_splits
from kernfed.methods.heads.messages import HeadLoss
from kernfed.methods.heads.tensors.fitting import fit
from kernfed.methods.heads.tensors.losses import Head
from kernfed.methods.heads.tensors.ridge_choice import Split, chosen_ridge, splits
from kernfed_testing.methods.heads import tensor


def noisy(num: int, seed: int) -> Head:
    """A number in 30 columns, two of which tell it."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(num, 30))
    return Head(HeadLoss.SQUARED, tensor(x), tensor(x[:, :1] + x[:, 1:2] + draw.normal(size=(num, 1))), 0.0)


@pytest.mark.parametrize("begin", [1e-9, 1e-5, 1e2, 1e6])
def test_the_ridge_that_predicts_best_is_found_from_both_sides(begin: float) -> None:
    """Its loss on the rows kept apart is within a tenth of the least, however far off the search begins."""
    fitting, validation = noisy(40, 1), noisy(40, 2)
    found = chosen_ridge([Split(fitting, validation)], begin)
    grid = np.logspace(-4, 3, 15)
    losses = [validation.loss_and_slope(fit(replace(fitting, ridge=r)))[0] for r in (*grid, found)]
    assert losses[-1] < 1.1 * min(losses)
    assert 1e-2 <= found <= 10.0


def test_without_rows_kept_apart_the_ridge_stays() -> None:
    """There is nothing to choose by."""
    head = noisy(20, 1)
    assert chosen_ridge([Split(head, head.take(torch.zeros(0, dtype=torch.long)))], 0.3) == 0.3


def test_few_rows_are_kept_apart_in_turn() -> None:
    """As many fifths as hold a hundred rows, all of them below a hundred rows; each row is kept apart at most once."""
    assert [num_splits(n, 100) for n in (20, 100, 250, 400, 500, 10_000)] == [5, 5, 2, 2, 1, 1]
    head = noisy(40, 1)
    parted = splits(head, torch.arange(40) % 5)
    assert [(s.fitting.num_rows, s.validation.num_rows) for s in parted] == [(32, 8)] * 5
    assert torch.equal(torch.cat([s.validation.y for s in parted]).sort(0).values, head.y.sort(0).values)


def test_all_fifths_choose_better_than_one() -> None:
    """Mean loss on new rows over ten draws of 30 rows: with one fifth kept apart it is higher."""
    new = noisy(500, 99)
    lost = {1: 0.0, 5: 0.0}
    for seed in range(10):
        head = noisy(30, seed)
        parted = splits(head, torch.arange(30) % 5)
        for num in lost:
            ridge = chosen_ridge(parted[:num], 1e-3)
            lost[num] += new.loss_and_slope(fit(replace(head, ridge=ridge)))[0] / 10
    assert lost[5] < 0.97 * lost[1]
