"""Which of several arrays points another way than all others, or is much longer."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.maths.directions import compared


def alike(num: int, size: int = 40, noise: float = 0.3) -> list[np.ndarray]:
    """Arrays of one direction and some noise."""
    random = np.random.default_rng(4)
    whole = random.normal(size=(size, 2))
    return [whole + noise * random.normal(size=(size, 2)) for _ in range(num)]


@pytest.mark.parametrize("num", [3, 4, 9])
def test_the_one_of_the_other_sign_is_found(num: int) -> None:
    """An array whose sign is turned points against the others, which agree; among honest ones there is none."""
    arrays = alike(num)
    assert compared(arrays).tells
    assert compared(arrays).odd is None
    arrays[1] = -arrays[1]
    odd = compared(arrays).odd
    assert odd is not None
    assert (odd.index, odd.against) == (1, True)
    assert odd.cosine < -0.8


def test_what_counts_is_the_way_from_where_they_begin() -> None:
    """Models that all lie near one place are compared by their movements from there."""
    start = 100.0 * np.ones((40, 2))
    arrays = [start + array for array in alike(4)]
    arrays[2] = 2 * start - arrays[2]
    assert compared(arrays).odd is None
    odd = compared(arrays, start).odd
    assert odd is not None
    assert odd.index == 2


def test_a_much_longer_one_is_found_whichever_way_it_points() -> None:
    """Numbers of -1 throughout, ten times as long as the others', though no longer than a foe may choose."""
    arrays = [0.02 * array for array in alike(4)]
    arrays[3] = -np.ones((40, 2))
    odd = compared(arrays).odd
    assert odd is not None
    assert (odd.index, odd.against) == (3, False)
    assert odd.longer > 8


def test_one_that_points_elsewhere_stands_out_where_all_others_agree_well() -> None:
    """Numbers of -1 throughout, as long as the others'; where these agree less well nobody is named."""
    arrays = alike(4)
    arrays[2] = -np.ones((40, 2))
    odd = compared(arrays).odd
    assert odd is not None
    assert (odd.index, odd.against) == (2, True)
    assert -0.3 < odd.cosine < 0.4
    arrays = alike(4, noise=1.0)
    arrays[2] = -np.ones((40, 2))
    assert compared(arrays).odd is None


def test_where_arrays_cancel_or_differ_nobody_is_named() -> None:
    """Gradients at a common optimum each point against the sum of the rest, and two camps have no outsider."""
    arrays = alike(3, noise=1.0)
    mean = np.mean(arrays, axis=0)
    assert not compared([array - mean for array in arrays]).tells
    camps = alike(4)
    assert compared([camps[0], camps[1], -camps[2], -camps[3]]).odd is None
    assert compared(alike(2)).odd is None
    assert compared([*alike(3), np.zeros((40, 2))]).odd is None


def test_what_cancels_is_the_sum_that_is_formed() -> None:
    """Means over rows of a large client and of two small ones at their optimum cancel by their rows alone."""
    small = alike(2, noise=0.1)
    arrays = [-(small[0] + small[1]) / 3, *small]
    odd = compared(arrays).odd
    assert odd is not None
    assert odd.index == 0
    assert not compared(arrays, weights=[120.0, 40.0, 40.0]).tells


def test_a_client_that_is_near_its_own_optimum_is_not_odd() -> None:
    """One of many rows that points against two small ones is short; and two point alike by chance at times."""
    small = alike(2, noise=0.6)
    short = -0.1 * (small[0] + small[1]) + 0.02 * alike(3)[2]
    assert compared([small[0], small[1], short], weights=[60.0, 60.0, 600.0]).odd is None
    long = 4.0 * short
    odd = compared([small[0], small[1], long], weights=[60.0, 60.0, 60.0]).odd
    assert odd is not None
    assert odd.index == 2
    assert compared([small[0], small[1], long], weights=[60.0, 60.0, 60.0], begun=True).odd is None


def test_a_client_of_many_more_rows_may_point_elsewhere() -> None:
    """Numbers of -1 stand out among clients of as many rows; one that takes more steps than they goes another way."""
    arrays = alike(4)
    arrays[2] = -np.ones((40, 2))
    assert compared(arrays, weights=[60.0, 60.0, 120.0, 60.0]).odd is not None
    assert compared(arrays, weights=[60.0, 60.0, 600.0, 60.0]).odd is None


def test_where_a_model_moved_before_a_flip_among_four_is_found() -> None:
    """The sum of three that agree and one of the other sign is half as long as all, and does not count as cancelled."""
    arrays = alike(4)
    arrays[1] = -arrays[1]
    odd = compared(arrays, begun=True).odd
    assert odd is not None
    assert odd.index == 1


def test_large_arrays_are_looked_at_in_part() -> None:
    """Evenly spaced numbers of arrays beyond the limit tell the same."""
    arrays = alike(5, size=60_000)
    arrays[4] = -arrays[4]
    odd = compared([array.astype(np.float32) for array in arrays]).odd
    assert odd is not None
    assert odd.index == 4


def test_no_column_of_a_large_array_is_overlooked() -> None:
    """Of 2^16 numbers in two columns a half is looked at: some of each column, not all of one."""
    arrays = alike(4, size=1 << 15, noise=0.1)
    for column in (0, 1):
        turned = [array.copy() for array in arrays]
        turned[2][:, column] *= -1
        odd = compared(turned).odd
        assert odd is not None
        assert odd.index == 2
