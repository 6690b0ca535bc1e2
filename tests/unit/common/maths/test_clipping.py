"""Tests of `kernfed.maths.clipping`: which rows stand far out, and where they are taken."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.maths.clipping import clip_rows


def test_one_bad_row_moves_nothing() -> None:
    """However bad a row is, it is taken at the farthest of the others, on its side."""
    x = np.random.default_rng(1).normal(size=(30, 2))
    for bad in (-100.0, 1e4, 1e300):
        y = x.copy()
        y[3, 0] = bad
        found, far = clip_rows(y)
        assert far.tolist() == [1, 0]
        centre = np.median(y[:, 0])
        assert found[3, 0] - centre == pytest.approx(np.sign(bad) * np.sort(np.abs(y[:, 0] - centre))[-2])
        assert np.array_equal(np.delete(found, 3, axis=0), np.delete(y, 3, axis=0))


@pytest.mark.parametrize("size", [8, 30, 500])
def test_rows_of_clean_columns_stay_the_same_array(size: int) -> None:
    """Normal, uniform and two-valued columns have no row far out, so nothing is copied."""
    random = np.random.default_rng(2)
    rare = (np.arange(size) == 0).astype(float)
    x = np.column_stack([random.normal(size=size), random.uniform(size=size), rare, np.ones(size)])
    found, far = clip_rows(x)
    assert found is x
    assert not far.any()


def test_up_to_one_row_in_a_hundred_may_stand_far_out() -> None:
    """Five bad rows of 500 are found, and six are taken for a part of the column."""
    x = np.random.default_rng(3).normal(size=(500, 1))
    x[:5] = 1e3
    assert clip_rows(x)[1].tolist() == [5]
    x[:6] = 1e3
    assert clip_rows(x)[1].tolist() == [0]


def test_few_rows_are_left_alone() -> None:
    """Of seven rows nobody can tell which one is wrong."""
    x = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [1e6]])
    assert clip_rows(x)[0] is x
