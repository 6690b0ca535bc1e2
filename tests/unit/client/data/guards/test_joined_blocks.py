"""Blocks are joined until in none of them a few rows stand out, and those of all jobs lie in one another."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from kernfed.arrays import Floats, Integers
from kernfed.jobs.client_file import PolicySection
from kernfed_client.data.guards.joined_blocks import FewStandOut, joined_blocks
from kernfed_client.data.guards.split import JOINED_RULES, RULES
from kernfed_client.data.reading.partition_data import PartitionData

NUM, LEAST = 600, 10
MARKS = {"half": 2, "fifth": 5, "tenth": 10, "rare": 40}


def rows(*marks: str, labels: list[str] | None = None) -> PartitionData:
    """A column of numbers, and marks, of which one of so many rows has each."""
    draw = np.random.default_rng(4)
    columns = {name: (draw.permutation(NUM) % MARKS[name] == 0).astype(float) for name in MARKS}
    x = np.column_stack([np.random.default_rng(1).normal(size=NUM), *(columns[name] for name in marks)])
    return PartitionData(x, labels, None if labels else x[:, 0] ** 2, 0, np.arange(2, NUM + 2))


def blocks(
    data: PartitionData, policy: PolicySection | None = None, rules: int = RULES
) -> tuple[Integers, FewStandOut]:
    """Sixty blocks of ten rows, joined."""
    judge = FewStandOut(data, policy or PolicySection(min_rows=LEAST), rules)
    return joined_blocks(np.random.default_rng(2).permutation(NUM) // LEAST, judge.allows), judge


def apart(mark: Floats, block: Integers) -> list[int]:
    """Rows of each block with a mark, and without."""
    ones = np.bincount(block, weights=mark)
    return [int(n) for n in np.concatenate([ones, np.bincount(block) - ones]) if n]


def test_columns_of_numbers_leave_blocks_as_they_are() -> None:
    """No value of theirs comes twice."""
    found, judge = blocks(rows())
    np.testing.assert_array_equal(np.bincount(found), LEAST)
    assert not judge.blamed.any()


@pytest.mark.parametrize(("mark", "fewest"), [("half", 10), ("fifth", 5), ("tenth", 2), ("rare", 1)])
def test_a_mark_has_no_few_rows_in_a_block(mark: str, fewest: int) -> None:
    """There are as many blocks as that leaves, at least."""
    data = rows(mark)
    found, judge = blocks(data)
    assert min(apart(data.x[:, 1], found)) >= LEAST
    assert found.max() + 1 >= fewest
    assert judge.blamed.tolist() == [False, True, False]


def test_a_site_may_allow_few_rows() -> None:
    """The policy's other values leave blocks as they are."""
    allowed = PolicySection(min_rows=LEAST, sparse_columns="allow", rare_classes="allow", few_values="allow")
    for data in (rows("tenth"), rows(labels=["yes", "no", "no"] * (NUM // 3))):
        np.testing.assert_array_equal(np.bincount(blocks(data, allowed)[0]), LEAST)


def test_no_class_has_few_rows_in_a_block() -> None:
    """A gradient has a column per class; the target is blamed."""
    labels = [f"c{k}" for k in np.random.default_rng(7).integers(0, 4, NUM)]
    found, judge = blocks(rows(labels=labels))
    for name in set(labels):
        assert min(apart(np.array([label == name for label in labels], dtype=float), found)) >= LEAST
    assert found.max() > 3
    assert judge.blamed.tolist() == [False, True]


def test_blocks_of_all_jobs_lie_in_one_another() -> None:
    """Of any two sets of columns, each block of one job lies in one of the other's, or holds it."""
    jobs = [blocks(rows(*marks))[0] for num in range(4) for marks in itertools.combinations(MARKS, num)]
    sets = [[frozenset(np.flatnonzero(found == k).tolist()) for k in range(found.max() + 1)] for found in jobs]
    for one, two in itertools.combinations(sets, 2):
        assert all(a <= b or b <= a or not a & b for a in one for b in two)


def test_no_sum_of_columns_has_few_rows_in_a_block() -> None:
    """Two columns of halves that differ in a fifth of the rows; a job that was begun before joins by columns alone."""
    data = rows("half", "fifth")
    data = replace(data, x=np.column_stack([data.x[:, :2], np.abs(data.x[:, 1] - data.x[:, 2])]))
    differ = (data.x[:, 1] != data.x[:, 2]).astype(float)
    found, judge = blocks(data)
    assert min(apart(differ, found)) >= LEAST
    assert judge.blamed.tolist() == [False, True, True, False]
    before, _ = blocks(data, rules=JOINED_RULES)
    assert min(apart(differ, before)) < LEAST


def test_combinations_of_two_marks() -> None:
    """Each block has none of a combination of values, or enough; where few rows have one, blocks stay as they are."""
    data = rows("half", "fifth")
    found, judge = blocks(data)
    kind = 2 * data.x[:, 1] + data.x[:, 2]
    counts = np.array([np.bincount(kind[found == k].astype(int), minlength=4) for k in range(found.max() + 1)])
    assert not ((counts > 0) & (counts < LEAST)).any()
    assert judge.blamed.tolist() == [False, True, True, False]
    assert (blocks(data, PolicySection(min_rows=LEAST, few_values="allow"))[0].max()) > found.max()
