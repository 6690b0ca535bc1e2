"""Rows behind a sum: all of them where terms are of a size, one where it outweighs all others."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.maths.few.behind import few_behind, wanted


@pytest.mark.parametrize(
    ("sizes", "few"),
    [
        ([3.0] * 60, False),
        ([1.0] * 10 + [0.0] * 50, False),
        ([1.0] * 9 + [0.0] * 51, True),
        ([1e6] + [1.0] * 59, True),
        ([1e200] * 60, False),
        ([0.0] * 60, False),
        ([1.0, 1.0], False),
        ([1.0, 0.1], True),
    ],
)
def test_as_many_rows_stand_behind_a_sum_as_count(sizes: list[float], few: bool) -> None:
    """Ten of sixty are wanted, of two both; the scale does not count, and a sum of zeros tells of nobody."""
    assert few_behind(np.array(sizes), 10) is few
    assert not few_behind(np.array(sizes), 1)


def test_of_few_rows_a_part_is_wanted() -> None:
    """A sixth, and between two hidden units a sixteenth; never fewer than two, less the rounding."""
    assert wanted(10, 600) == (9.5, 9.5)
    assert wanted(10, 48) == (7.5, 2.5)
    assert wanted(10, 4) == (1.5, 1.5)
