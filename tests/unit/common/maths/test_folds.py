"""Tests of `kernfed.maths.folds`: copies of a row, and rows of a group, lie in one fold."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.maths.folds import deal, joined, keep_apart, units, variance_of_means


def test_without_copies_folds_are_dealt_round() -> None:
    """As by the place in the order alone."""
    draw = np.random.default_rng(1)
    order = draw.permutation(23)
    fold = deal(order, units(draw.normal(size=(23, 2))), 5)
    assert list(fold[order]) == [i % 5 for i in range(23)]


@pytest.mark.parametrize("copies", [2, 4])
def test_copies_lie_in_one_fold(copies: int) -> None:
    """Folds are about the same size all the same; 0 and -0 are the same number."""
    draw = np.random.default_rng(2)
    x = np.tile(draw.normal(size=(30, 2)), (copies, 1))
    x[0, 0], x[30, 0] = 0.0, -0.0
    fold = deal(draw.permutation(len(x)), units(x), 5)
    assert (fold.reshape(copies, 30) == fold[:30]).all()
    assert set(np.bincount(fold)) == {6 * copies}
    apart = keep_apart(draw.permutation(len(x)), units(x), 3 * copies + 1)
    assert (apart.reshape(copies, 30) == apart[:30]).all()
    assert apart.sum() == 3 * copies


def test_rows_of_a_group_lie_in_one_fold_with_their_copies() -> None:
    """A row that has a copy in another group joins the two."""
    x = np.array([[1.0], [2.0], [3.0], [4.0], [1.0], [6.0]])
    unit = units(x, np.array([7, 7, 8, 8, 9, 9]))
    assert unit[0] == unit[1] == unit[4] == unit[5]
    assert unit[2] == unit[3] != unit[0]


@pytest.mark.parametrize("seed", range(4))
def test_chains_of_copies_and_groups_are_one_whatever_their_length(seed: int) -> None:
    """Each row of a long chain shares its content with one neighbour and its group with the other."""
    draw = np.random.default_rng(seed)
    links = np.arange(200)
    order = draw.permutation(200)
    copies, groups = (links // 2)[order], ((links + 1) // 2)[order]
    copies, groups = np.append(copies, 100 + links), np.append(groups, 1000 + links)
    unit = joined(copies, groups)
    assert len(set(unit[:200])) == 1
    assert list(unit[200:]) == list(range(1, 201))


def test_no_more_is_kept_apart_than_asked() -> None:
    """A unit that is too large stays with the others; of none, nothing is kept."""
    unit = np.array([0, 0, 0, 1, 2])
    assert list(keep_apart(np.arange(5), unit, 2)) == [False, False, False, True, True]
    assert not keep_apart(np.arange(5), unit, 0).any()


def test_copies_of_rows_make_a_mean_no_surer() -> None:
    """The variance of the mean of rows that are there four times is that of the rows once."""
    once = np.random.default_rng(3).normal(size=(2, 25))
    plain = variance_of_means(once, None)
    np.testing.assert_allclose(plain, once.var(axis=1, ddof=1) / 25)
    np.testing.assert_array_equal(variance_of_means(once, np.arange(25)), plain)
    four = np.repeat(once, 4, axis=1)
    np.testing.assert_allclose(variance_of_means(four, np.repeat(np.arange(25), 4)), plain)
