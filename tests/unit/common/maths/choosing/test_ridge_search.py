"""Tests of `kernfed.maths.choosing.ridge_search`: which ridges are tried, and which one is taken."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kernfed.maths.choosing.ridge_search import LEAST, MOST, RidgeSearch


def searched(begin: float, loss: Callable[[float], float]) -> RidgeSearch:
    search = RidgeSearch(begin)
    while search.tell(loss(search.ridge)):
        pass
    return search


@pytest.mark.parametrize("begin", [1e-8, 1e-4, 1e-2, 10.0])
def test_the_least_loss_is_found_from_both_sides(begin: float) -> None:
    """A curve with one valley is followed to it, and one ridge beyond at either end."""
    search = searched(begin, lambda ridge: 1.0 + abs(math.log10(ridge) + 4))
    assert search.best == pytest.approx(1e-4)
    assert search.level == pytest.approx(1.0)
    assert len(search.losses) <= abs(math.log10(begin) + 4) + 3


def test_a_flat_curve_keeps_the_ridge() -> None:
    """Less than half a percent is no reason to leave where the search began, nor is a loss that is out of reach."""
    assert searched(1e-3, lambda ridge: 1.0 + 0.001 * math.log10(ridge)).best == 1e-3
    assert searched(1e-3, lambda ridge: 1.0 if ridge == 1e-3 else math.inf).best == 1e-3


def test_fewer_wrong_rows_count_where_the_loss_hardly_rises() -> None:
    """A loss that rises slowly is followed up to 2 % while more rows are right; one that rises faster is not."""
    for rise, fewer, best in ((0.006, 10, 1e-6), (0.03, 10, 1e-3), (0.006, 1, 1e-3)):
        search = RidgeSearch(1e-3)
        going_on = True
        while going_on:
            steps = math.log10(search.ridge / 1e-3)
            going_on = search.tell(1.0 + rise * abs(steps), 100 + round(fewer * steps))
        assert search.best == pytest.approx(best)


def test_ridges_stay_in_their_range() -> None:
    """A loss that falls for ever ends at the range's end, and one that begins there goes the other way."""
    assert LEAST <= searched(1e-3, lambda ridge: ridge).best < 11 * LEAST
    assert MOST / 11 < searched(1e-3, lambda ridge: 1.0 / ridge).best <= MOST
    assert searched(2 * LEAST, lambda ridge: 1.0 / ridge).best > 1.0
