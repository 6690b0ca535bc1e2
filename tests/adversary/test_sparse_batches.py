"""Columns of which few rows of a batch, a fold or a round stand out, though enough of all rows do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kernfed_testing.hostile.adversary import COLUMNS, MIN_ROWS, Target, Told, moment_job, rows
from kernfed_testing.hostile.sparse import SPARSE_OFF, sparse_guards


def marked(num: int = 400, every: int = 12) -> dict[str, Sequence[object]]:
    """Rows, of which one of a dozen has a mark."""
    return rows(num, mark=(np.arange(num) % every == 0).astype(float).tolist())


def apart(told: Told, table: Mapping[str, Sequence[object]]) -> list[int]:
    """Of each block, how many rows have the mark, and how many have not."""
    marks = {place + 2 for place, mark in enumerate(table["mark"]) if mark}
    return [num for block in told.blocks for num in (len(block & marks), len(block - marks))]


@sparse_guards
def test_a_batch_of_which_one_row_has_a_mark(tmp_path: Path, policy: str) -> None:
    """One step on a batch: the mark's weight is the sum of the targets of the rows that have it."""
    table, target = marked(), Target(tmp_path, marked(), policy)
    job = moment_job(data={"features": [*COLUMNS, "mark"]}, batch_size=MIN_ROWS)
    told = [target.ask(job.model_copy(update={"seed": seed})) for seed in range(12)]
    y = np.array(table["y"], dtype=float)[np.array(table["mark"], dtype=float) == 1.0]
    sizes = {len(block) for block in told[0].blocks}
    found = [abs(size * one.weights.ravel()[3] - value) < 1e-9 for one in told for size in sizes for value in y]
    assert any(found) == (policy == SPARSE_OFF)
    few = [num for num in apart(told[0], table) if 0 < num < MIN_ROWS]
    assert bool(few) == (policy == SPARSE_OFF)


@sparse_guards
def test_a_batch_of_which_two_columns_differ_in_one_row(tmp_path: Path, policy: str) -> None:
    """Each has many ones; what their weights differ by is the sum of the targets of the rows in which they differ."""
    half = np.random.default_rng(2).integers(2, size=400).astype(float)
    differs = np.arange(400) % 12 == 0
    half[differs] = 0.0
    table = rows(400, half=half.tolist(), other=(half + differs).tolist())
    target = Target(tmp_path, table, policy)
    job = moment_job(data={"features": [*COLUMNS, "half", "other"]}, batch_size=MIN_ROWS)
    told = [target.ask(job.model_copy(update={"seed": seed})) for seed in range(12)]
    y = np.array(table["y"], dtype=float)[differs]
    sizes = {len(block) for block in told[0].blocks}
    weights = [one.weights.ravel() for one in told]
    found = [abs(size * (w[4] - w[3]) - value) < 1e-9 for w in weights for size in sizes for value in y]
    assert any(found) == (policy == SPARSE_OFF)
    few = [num for num in apart(told[0], {"mark": differs.astype(float).tolist()}) if 0 < num < MIN_ROWS]
    assert bool(few) == (policy == SPARSE_OFF)
