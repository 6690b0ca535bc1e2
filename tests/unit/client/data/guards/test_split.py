"""Rows that are held out: drawn by the job, or put first by their content, in whole blocks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.arrays import Flags
from kernfed.errors import PolicyError
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection
from kernfed_client.data.guards.split import blocks_of, drawn_rows, ordered, refuse_draws, units_of
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_testing.partitions import regression

COLUMNS = ("a", "b", "c")


@given(
    labels=st.lists(st.sampled_from("abcde"), min_size=1, max_size=60),
    fraction=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9]),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_drawn_split_is_stratified_and_deterministic(labels: list[str], fraction: float, seed: int) -> None:
    """Held-out rows are the same each time, in proportion for each class, and leave each class a training row."""
    held_out = drawn_rows(labels, len(labels), fraction, seed, "va")
    assert (held_out == drawn_rows(list(labels), len(labels), fraction, seed, "va")).all()
    total = 0
    for name in set(labels):
        here = np.array([label == name for label in labels])
        n, k = here.sum(), held_out[here].sum()
        assert k <= n - 1, "every class keeps a training row"
        assert abs(k - fraction * n) < 1 or k == n - 1
        total += int(k)
    assert total <= int(fraction * len(labels) + 0.5)
    if all(labels.count(name) - 1 >= fraction * labels.count(name) + 1 for name in set(labels)):
        assert total == int(fraction * len(labels) + 0.5)


def test_a_drawn_split_depends_on_seed_and_client_alone() -> None:
    """Another seed or another client holds out other rows."""
    base = drawn_rows(None, 100, 0.25, 1, "va")
    assert base.sum() == 25
    assert (base != drawn_rows(None, 100, 0.25, 2, "va")).any()
    assert (base != drawn_rows(None, 100, 0.25, 1, "cleveland")).any()


def test_one_row_is_a_training_row() -> None:
    """A single row is never held out."""
    assert drawn_rows(None, 1, 0.9, 1, "va").tolist() == [False]


def made_rows(x: Any, y: Any = None, labels: list[str] | None = None) -> PartitionData:
    return PartitionData(x, labels, y, 0, np.arange(1, len(x) + 1))


@pytest.mark.parametrize("classes", [0, 2])
def test_copies_of_a_row_are_held_out_together(classes: int) -> None:
    """Rows that repeat go to one side with their copies; without copies the draw is that of single rows."""
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(60, 3)), draw.integers(0, classes, size=60) if classes else draw.normal(size=60)
    four = np.tile(np.arange(60), 4)
    labels = [f"c{v}" for v in y[four]] if classes else None
    unit = units_of(made_rows(x[four], None if classes else y[four], labels))
    held_out = drawn_rows(labels, 240, 0.25, 1, "va", unit)
    assert (held_out.reshape(4, 60) == held_out[:60]).all()
    assert 52 <= held_out.sum() <= 60
    assert not (drawn_rows(labels, 240, 0.25, 1, "va").reshape(4, 60) == held_out[:60]).all()
    names = None if labels is None else labels[:60]
    whole = drawn_rows(names, 60, 0.25, 1, "va", units_of(made_rows(x, None if classes else y, names)))
    assert (whole == drawn_rows(names, 60, 0.25, 1, "va")).all()


def test_few_different_rows_are_no_copies() -> None:
    """A table of two yes-or-no columns has equal rows by its nature; a few copied rows are copies."""
    draw = np.random.default_rng(2)
    assert units_of(made_rows(draw.integers(0, 2, size=(400, 2)).astype(np.float64), labels=["a", "b"] * 200)) is None
    copied = made_rows(np.repeat(draw.normal(size=(2, 3)), 4, axis=0), np.repeat([1.0, 2.0], 4))
    held_out = drawn_rows(None, 8, 0.25, 1, "va", units_of(copied))
    assert held_out.sum() == 4
    assert len(set(held_out[:4])) == 1


def some_rows(num: int, seed: int = 1) -> PartitionData:
    draw = np.random.default_rng(seed)
    return made_rows(draw.normal(size=(num, 3)), draw.normal(size=num))


def held_out_of(rows: PartitionData, columns: tuple[str, ...], least: int, fraction: float = 0.25) -> Flags:
    return blocks_of(rows, columns, least, anew=False).held_out(fraction)


def test_content_decides_and_neither_the_order_of_rows_nor_of_columns() -> None:
    """Rows and columns in another order, and other columns' names in the same order, hold the same rows out."""
    rows, order = some_rows(80), np.random.default_rng(2).permutation(80)
    found = held_out_of(rows, COLUMNS, 10)
    assert found.sum() == 20
    assert (held_out_of(rows.take(order), COLUMNS, 10) == found[order]).all()
    turned = replace(rows, x=rows.x[:, [2, 0, 1]])
    assert (held_out_of(turned, ("c", "a", "b"), 10) == found).all()


@given(
    labels=st.lists(st.sampled_from("abcde"), min_size=1, max_size=70),
    least=st.sampled_from([1, 2, 5, 10]),
    copies=st.integers(1, 3),
)
def test_no_two_fractions_differ_by_few_rows(labels: list[str], least: int, copies: int) -> None:
    """Whatever two jobs hold out, one set holds the other, and they differ by at least so many rows or by none."""
    num = len(labels)
    x = np.random.default_rng(num).normal(size=(num, 3))
    rows = made_rows(np.tile(x, (copies, 1)), labels=labels * copies)
    blocks = blocks_of(rows, COLUMNS, least, anew=False)
    sets = [blocks.held_out(fraction) for fraction in (0.0, *np.linspace(1 / num, 0.9, 2 * num))]
    for smaller, larger in itertools.pairwise(sets):
        assert not (smaller & ~larger).any()
        assert int((larger & ~smaller).sum()) in (0, *range(least, rows.num_rows + 1))
        assert int(larger.sum()) in (0, *range(least, rows.num_rows - least + 1))
    sizes = np.bincount(blocks.of_rows)
    assert (sizes >= min(least, rows.num_rows)).all()
    held_out = [label for label, out in zip(rows.labels or (), sets[-1], strict=True) if out]
    assert all(held_out.count(name) < (rows.labels or []).count(name) for name in set(labels))
    if num * copies >= 20 and copies > 1:
        assert (sets[-1].reshape(copies, num) == sets[-1][:num]).all()


def test_each_class_gives_its_share() -> None:
    """Of classes of 100, 40 and 20 rows a quarter is held out of each."""
    labels = ["a"] * 100 + ["b"] * 40 + ["c"] * 20
    rows = made_rows(np.random.default_rng(3).normal(size=(160, 3)), labels=labels)
    held_out = held_out_of(rows, COLUMNS, 10)
    assert [int(held_out[i:j].sum()) for i, j in ((0, 100), (100, 140), (140, 160))] == [25, 10, 5]


def test_rows_that_come_later_leave_the_order_of_the_others() -> None:
    """Ten more rows change which of the others are held out by at most the rows at the end of the cut."""
    more = some_rows(110)
    rows = more.take(np.arange(100))
    before, after = held_out_of(rows, COLUMNS, 1), held_out_of(more, COLUMNS, 1)[:100]
    assert int((before != after).sum()) <= 10


@pytest.mark.parametrize("by_record", [True, False])
def test_blocks_of_other_rows_are_other_blocks(by_record: bool) -> None:
    """A job that leaves out 19 of 400 rows: its last block is not that of all, and a row more."""
    for seed in range(10):
        rows = some_rows(400, seed)
        rows = ordered(rows, COLUMNS) if by_record else rows
        fewer = rows.take(np.sort(np.random.default_rng(seed).permutation(400)[19:]))
        all_blocks, blocks = ([set(part) for part in blocks_by_row(part)] for part in (rows, fewer))
        assert min(len(one ^ two) for one in all_blocks for two in blocks) >= 10


def blocks_by_row(rows: PartitionData) -> list[list[int]]:
    """The places in the file of each block's rows."""
    of_rows = blocks_of(rows, COLUMNS, 10).of_rows
    return [rows.row_numbers[of_rows == k].tolist() for k in range(of_rows.max() + 1)]


def test_the_same_rows_lie_in_the_same_blocks_whatever_the_columns_are() -> None:
    """Neither the columns of a job nor the order of its rows changes its blocks."""
    rows = ordered(some_rows(60), COLUMNS)
    other = replace(rows, x=rows.x[:, :1]).take(np.random.default_rng(1).permutation(60))
    assert sorted(map(sorted, blocks_by_row(rows))) == sorted(map(sorted, blocks_by_row(other)))


def test_draws_are_refused_unless_the_policy_allows_them() -> None:
    """A split by the seed or the columns is refused where numbers stand for several rows, with the remedies."""
    drawn = regression(by_record=True)
    file = ClientFile(datasets={"heart": DatasetSection(train=PartitionFile(path=Path("a.csv")))})
    for split in (drawn, replace(drawn, by_content=True, by_record=False)):
        with pytest.raises(PolicyError, match=r"data.split = \"by-record\".*policy.drawn_splits"):
            refuse_draws(file, "heart", split)
    for policy in (PolicySection(min_rows=1), PolicySection(drawn_splits=True)):
        refuse_draws(file.model_copy(update={"policy": policy}), "heart", drawn)
    for allowed in (replace(drawn, by_content=True, by_record=True), replace(drawn, test_fraction=0.0)):
        refuse_draws(file, "heart", allowed)
