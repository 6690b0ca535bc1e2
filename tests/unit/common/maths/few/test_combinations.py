"""Columns of few values, and which rows share a combination of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.maths.few.combinations import all_combinations_of, combinations_of


def columns(num: int, *kinds: int | str) -> Floats:
    """Columns of so many whole numbers, or "real" ones."""
    draw = np.random.default_rng(7)
    drawn = [draw.normal(size=num) if isinstance(kind, str) else draw.integers(0, kind, size=num) for kind in kinds]
    return np.column_stack(drawn).astype(np.float64)


def test_rows_of_a_combination_are_counted() -> None:
    """Of yes and no in six columns, those of which fewer than ten rows have the same."""
    x = columns(240, *[2] * 6)
    found = combinations_of(x)
    assert found is not None
    same = (x[:, None] == x[None]).all(axis=-1).sum(axis=1)
    np.testing.assert_array_equal(found.rare(10), same < 10)
    half = np.arange(120)
    np.testing.assert_array_equal(found.rare(3, half), (x[half, None] == x[None, half]).all(-1).sum(1) < 3)


@pytest.mark.parametrize(
    ("kinds", "seen"),
    [
        ((2,) * 12, 12),
        ((2,) * 13, None),  # 8,192 combinations
        (("real",), None),
        ((50, 2), 2),  # of 40 rows nearly all differ, but they are whole numbers
        (("real", 2, 2), 2),
        (("real", "real", "real", 2, 2, 2), None),
        ((2, "real", "real"), 1),
        ((50, 50, 2), 2),  # 5,000 of all three, and of one column of fifty values ten are seen
    ],
)
def test_columns_that_can_be_listed(kinds: tuple[int | str, ...], seen: int | None) -> None:
    """As many as their combinations allow, those of most values left first; a number of digits counts as ten."""
    found = combinations_of(columns(40, *kinds))
    assert (None if found is None else len(found.columns)) == seen


def test_scales_change_nothing() -> None:
    """Standardised columns of decimals are on their grid as before."""
    x = np.round(columns(60, "real"), 1)
    found = combinations_of((x - x.mean()) / x.std())
    assert found is not None
    assert len(np.unique(found.number)) == len(np.unique(x))


def test_columns_that_a_map_hardly_sees() -> None:
    """A lengthscale of a million leaves a column out; one of its own size does not."""
    x = columns(60, *["real"] * 5, *[2] * 3)
    blind, seeing = np.array([1e6] * 5 + [1.0] * 3), np.ones(8)
    found = combinations_of(x, blind)
    assert found is not None
    assert found.columns.tolist() == [5, 6, 7]
    assert combinations_of(x, seeing) is None


@pytest.mark.parametrize(("lengthscale", "told"), [(1.0, True), (50.0, True), (1e8, False)])
def test_long_lengthscales_hide_no_combination(lengthscale: float, told: bool) -> None:
    """Six columns count at fifty times their span, and columns that are seen less do not make them too many."""
    x = columns(60, *[2] * 6, *["real"] * 9)
    alone = list(all_combinations_of(x[:, :6], lengthscale))
    beside = list(all_combinations_of(x, np.array([lengthscale] * 6 + [1e3 * lengthscale] * 9)))
    assert bool(alone) == bool(beside) == told
    assert all(found.columns.tolist() == [0, 1, 2, 3, 4, 5] for found in (*alone, *beside))


def test_numbers_of_which_hardly_any_comes_twice() -> None:
    """Ten whole numbers of a stream are no list of its values, where the caller says so."""
    x = np.arange(10.0)[:, None]
    assert combinations_of(x) is not None
    assert combinations_of(x, grids=False) is None


def test_nothing_to_tell_apart() -> None:
    """No rows, and constant columns."""
    assert combinations_of(np.zeros((0, 3))) is None
    assert combinations_of(np.ones((20, 3))) is None


def test_sums_of_features_tell_each_combination() -> None:
    """What the rule is for: 30 cosines of 16 combinations, at a lengthscale of twice their side."""
    x, y = columns(60, *[2] * 4), np.random.default_rng(1).normal(size=60)
    draw = np.random.default_rng(2)
    omega, phase = draw.normal(size=(30, 4)) / 2.0, draw.uniform(0, 6.28, size=30)
    grid = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    found = np.linalg.lstsq(np.cos(grid @ omega.T + phase).T, np.cos(x @ omega.T + phase).T @ y, rcond=None)[0]
    want = [y[(x == row).all(axis=1)].sum() for row in grid]
    np.testing.assert_allclose(found, want, atol=1e-6)
