"""Sets of rows whose sums add up to one over a few rows, and sets whose sums do not."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.arrays import Integers
from kernfed_client.data.guards import row_spans
from kernfed_client.data.guards.row_spans import tells_of_few

NUM, LEAST = 400, 10


def without(*out: range) -> Integers:
    """All rows but those."""
    return np.setdiff1d(np.arange(NUM), np.concatenate([np.array(r) for r in out] or [np.array([], int)]))


def drawn(num: int, rows: int = NUM) -> list[Integers]:
    """Sets of three quarters of the rows."""
    draw = np.random.default_rng(0)
    return [np.sort(draw.permutation(rows)[: 3 * rows // 4]) for _ in range(num)]


@pytest.mark.parametrize("shared", [1, 5, 9, 10])
@pytest.mark.parametrize("others", [0, 12])
def test_four_sets_tell_what_two_exclusions_share(shared: int, others: int) -> None:
    """All, without A, without B and without either: the sum over A and B, whatever other jobs there were."""
    a, b = range(20), range(20 - shared, 40 - shared)
    earlier = [*drawn(others), without(), without(a), without(b)]
    assert tells_of_few(without(a, b), earlier, LEAST) == (shared < LEAST)
    assert not tells_of_few(without(a, b), earlier[:-1], LEAST)


def test_what_was_told_before_is_no_reason() -> None:
    """A job again, and one that adds nothing, pass also where earlier jobs tell about few rows."""
    earlier = [without(), without(range(1)), without(range(100, 150))]
    assert not tells_of_few(without(), earlier, LEAST)
    assert not tells_of_few(without(range(1)), earlier, LEAST)
    assert not tells_of_few(without(range(200, 300)), earlier, LEAST)
    assert tells_of_few(without(range(1), range(3, 4)), earlier, LEAST)


def test_sets_that_are_drawn_pass_until_they_are_nearly_as_many_as_the_rows() -> None:
    """Forty splits of sixty rows tell about no few rows; sixty tell all of them."""
    sets = drawn(60, 60)
    assert not any(tells_of_few(sets[i], sets[:i], LEAST) for i in range(0, 40, 5))
    assert tells_of_few(sets[59], sets[:59], LEAST)


def test_too_many_sets_are_judged_by_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work has a bound, and four sets always count."""
    monkeypatch.setattr(row_spans, "_MOST_WORK", 1)
    a, b = range(20), range(19, 39)
    assert tells_of_few(without(a, b), [*drawn(12), without(), without(a), without(b)], LEAST)
    assert not tells_of_few(without(a, b), [without(), *drawn(12), without(a), without(b)], LEAST)
