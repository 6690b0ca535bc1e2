"""Tests of `kernfed.maths.choosing.by_folds` and `lengthscales`: sums over folds stand for the rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from kernfed.arrays import Floats, Integers
from kernfed.maths.choosing.by_folds import FoldSums, Told, held_out, ridges_around
from kernfed.maths.choosing.lengthscales import FARTHEST, factor, next_step
from kernfed.maths.triangles import pack

NUM_FOLDS = 3
RIDGES = [1e-4, 1e-2, 1.0]


def rows_of(seed: int, num: int = 60) -> tuple[Floats, Floats, Integers]:
    """Features, targets of two outputs, and folds of some rows."""
    draw = np.random.default_rng(seed)
    z = draw.normal(size=(num, 4)) + 1.0
    y = np.column_stack([np.sin(z[:, 0]) + 2.0, z @ np.arange(4.0)]) + 0.3 * draw.normal(size=(num, 2))
    return z, y, draw.integers(0, NUM_FOLDS, num)


def sums_of(z: Floats, y: Floats, fold: Integers) -> FoldSums:
    """The sums of a client with these rows."""
    wide = np.column_stack([np.ones(len(z)), z])
    parts = [fold == f for f in range(NUM_FOLDS)]
    return FoldSums(
        np.array([part.sum() for part in parts]),
        np.stack([pack(wide[part].T @ wide[part]) for part in parts]),
        np.stack([wide[part].T @ y[part] for part in parts]),
        np.array([np.square(y[part]).sum() for part in parts]),
    )


@pytest.mark.parametrize("intercept", [True, False])
def test_sums_tell_what_scikit_learn_finds_on_the_rows(intercept: bool) -> None:
    """Errors over each client's part of each fold are those of a ridge model that was fitted to the other folds' rows.

    The oracle is scikit-learn's Ridge, whose penalty is n times ours.
    """
    clients = [rows_of(1), rows_of(2, 40)]
    told = held_out([sums_of(*of) for of in clients], [1.0, 1.0], RIDGES, intercept=intercept)
    z, y, fold = (np.concatenate(parts) for parts in zip(*clients, strict=True))
    part = 0
    for number in range(NUM_FOLDS):
        fits = [
            Ridge(alpha=r * (fold != number).sum(), fit_intercept=intercept).fit(z[fold != number], y[fold != number])
            for r in RIDGES
        ]
        for own_z, own_y, own_fold in clients:
            apart = own_fold == number
            want = [np.square(own_y[apart] - fit.predict(own_z[apart])).sum() for fit in fits]
            np.testing.assert_allclose(told.errors[:, part], want, rtol=1e-8)
            assert told.rows[part] == apart.sum()
            part += 1
    assert part == len(told.rows)


def test_shares_count_and_who_has_none_is_left_out() -> None:
    """A client that counts half has half its errors and rows, and one that counts nothing is as one that is away."""
    one, two = sums_of(*rows_of(1)), sums_of(*rows_of(2))
    alone = held_out([one], [1.0], RIDGES, intercept=True)
    half, without = (held_out([one, two], [0.5, share], RIDGES, intercept=True) for share in (0.5, 0.0))
    np.testing.assert_allclose(without.errors, 0.5 * alone.errors, rtol=1e-9)
    np.testing.assert_allclose(half.means, held_out([one, two], [1.0, 1.0], RIDGES, intercept=True).means, rtol=1e-9)


def test_rows_of_one_fold_cannot_be_kept_apart() -> None:
    """Where all rows lie in one fold, nothing is left to train on, and there are no parts."""
    z, y, fold = rows_of(3)
    told = held_out([sums_of(z, y, np.zeros_like(fold))], [1.0], RIDGES, intercept=True)
    assert told.rows.size == 0


def test_the_usual_model_stays_within_a_standard_error() -> None:
    """The least error is taken where the parts agree that it is less, and else what there would be without a choice.

    Differences 1, 1, 1, 1 have no error; 4, -4, 4, 0 have a mean of 1 and a standard error of 1.9.
    """
    rows = np.ones(4)
    clear = Told(np.array([[2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0]]), rows)
    unclear = Told(np.array([[6.0, 2.0, 6.0, 2.0], [2.0, 6.0, 2.0, 2.0]]), rows)
    assert (clear.best(0), unclear.best(0), unclear.best()) == (1, 0, 1)
    assert math.isclose(unclear.standard_error_of_difference(0, 1), np.std([4, -4, 4, 0], ddof=1) / 2)
    assert math.isinf(Told(np.array([[1.0], [2.0]]), np.ones(1)).standard_errors()[0])


def test_sums_that_no_rows_have_are_told() -> None:
    """Honest sums pass, and each lie is named."""
    honest = sums_of(*rows_of(4))
    assert honest.impossible() == ""
    assert "many rows" in replace(honest, num_rows=honest.num_rows + 1).impossible()
    assert "below 0" in replace(honest, target_squares=-honest.target_squares).impossible()
    assert "larger" in replace(honest, target_moments=1e3 * honest.target_moments).impossible()
    assert "features" in honest.impossible(squared=0.5)
    assert "another number" in replace(honest, target_moments=honest.target_moments[:, :-1]).impossible()


def test_ridges_hold_the_usual_one_and_stay_in_range() -> None:
    """By half tens around a ridge, itself among them bit for bit; near the least that there may be, fewer."""
    assert 3e-4 in ridges_around(3e-4)
    assert len(ridges_around(3e-4)) == 15
    assert min(ridges_around(1e-10)) == 1e-10


@pytest.mark.parametrize("least", [-5, -2, 0, 1, 4, FARTHEST + 3])
def test_lengthscales_end_at_the_best(least: int) -> None:
    """On errors with one valley the search ends at it, or at the farthest lengthscale, and tries few."""
    losses: dict[int, float] = {}
    while (step := next_step(losses)) is not None:
        losses[step] = abs(step - least)
    assert min(losses, key=lambda s: losses[s]) == min(least, FARTHEST)
    assert len(losses) <= 8
    assert max(map(abs, losses)) <= FARTHEST
    assert factor(2) == 2.0
