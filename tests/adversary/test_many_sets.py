"""Many jobs that leave out 10, 20, 30, ... rows: the blocks of all these sets are a system of linear equations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import PolicyError
from kernfed.jobs.job_file import data_schema
from kernfed_client.data.guards.row_spans import tells_of_few
from kernfed_testing.hostile.adversary import MIN_ROWS, Target, moment_job, products, rows
from kernfed_testing.hostile.many_sets import NUM, known, members, ranges

ALLOWED, DEFAULT = 'near_jobs = "allow"', f"min_rows = {MIN_ROWS}"


def blocks_told(target: Target, wanted: Sequence[dict[str, list[float]]]) -> tuple[list[frozenset[int]], int]:
    """Rows of each block, of all jobs that were not refused, by their places from 0; and how many were refused.

    A batch is of whole blocks, so answers over batches by some seeds tell the sum over each.
    """
    found: list[frozenset[int]] = []
    refused = 0
    for chosen in wanted:
        schema = data_schema(moment_job(data={"ranges": chosen}))
        try:
            data = target.local_job().load("default", schema)
        except PolicyError:
            refused += 1
            continue
        assert data.block is not None
        places = data.train.row_numbers - 2
        found.extend(frozenset(places[data.block == k].tolist()) for k in np.unique(data.block))
    return found, refused


@pytest.mark.parametrize(("policy", "num_jobs"), [(ALLOWED, 16), (DEFAULT, 49)])
def test_blocks_of_many_sets_of_rows(tmp_path: Path, policy: str, num_jobs: int) -> None:
    """Sums over blocks of ten rows give each row exactly after a dozen jobs; with blocks for life, none after fifty."""
    table = rows(NUM, seed=7)
    target = Target(tmp_path, table, policy)
    blocks, refused = blocks_told(target, list(itertools.islice(ranges(table), num_jobs)))
    member = members(blocks)
    if policy == ALLOWED:
        found = np.linalg.lstsq(member, member @ products(table), rcond=None)[0]
        np.testing.assert_allclose(found, products(table), atol=1e-6)
        assert known(member) == NUM
        return
    assert min(map(len, blocks)) >= MIN_ROWS
    assert len(member) <= (NUM + NUM // MIN_ROWS) // 2
    assert known(member) == 0
    sets = [np.flatnonzero(one) for one in member]
    assert not any(tells_of_few(one, sets[:place], MIN_ROWS) for place, one in enumerate(sets) if place)
    assert refused < num_jobs // 2 or num_jobs > 16


def test_the_same_sets_cost_nothing(tmp_path: Path) -> None:
    """A job on rows that were dealt before has the same blocks, after fifty sets and in a client that starts again."""
    table = rows(NUM, seed=7)
    wanted = list(itertools.islice(ranges(table), 6))
    target = Target(tmp_path, table)
    once, _ = blocks_told(target, wanted)
    again, refused = blocks_told(target, wanted[::-1])
    assert not refused
    assert set(once) == set(again)


def test_rows_that_come_are_blocks_of_their_own(tmp_path: Path) -> None:
    """A file that grows by ten rows a night tells ten nights later no more than that night's ten, and loses none."""
    table = rows(2 * NUM, seed=7)
    target = Target(tmp_path, {name: column[:NUM] for name, column in table.items()})
    blocks: list[frozenset[int]] = []
    for num in range(NUM, 2 * NUM, MIN_ROWS):
        target.write({name: column[:num] for name, column in table.items()})
        found, refused = blocks_told(target, [{}])
        assert not refused
        assert sum(map(len, found)) == num
        blocks += found
    assert len(set(blocks)) == 19


def test_groups_that_a_site_names_later(tmp_path: Path) -> None:
    """Blocks of a job before, of ten rows, would hold parts of groups, and too few of them."""
    table = rows(NUM, seed=7) | {"patient": [f"p{place // 4}" for place in range(NUM)]}
    target = Target(tmp_path, table)
    blocks_told(target, [{}])
    section = target.file.datasets["default"].model_copy(update={"group": "patient"})
    target.file = target.file.model_copy(update={"datasets": {"default": section}})
    data = target.local_job().load("default", data_schema(moment_job()))
    assert data.block is not None
    assert data.train.group is not None
    for block in np.unique(data.block):
        its = data.train.group[data.block == block]
        assert len(set(its)) >= MIN_ROWS
        assert set(its).isdisjoint(data.train.group[data.block != block])
