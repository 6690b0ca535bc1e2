"""Many jobs that leave out some test rows: their blocks of points are a system of linear equations."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from kernfed.errors import PolicyError
from kernfed.jobs.job_file import data_schema
from kernfed_client.methods.reweight.points import point_choice
from kernfed_testing.hostile.adversary import MIN_ROWS, Target, moment_job, rows
from kernfed_testing.hostile.many_sets import NUM, known, members, ranges


def test_points_of_a_test_distribution(tmp_path: Path) -> None:
    """Blocks of test points by other ranges: those of the first job stay where they are whole, and few come."""
    table = rows(NUM, seed=8)
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    target, told = Target(tmp_path, rows(NUM, seed=7), test="\n".join(lines) + "\n"), list[frozenset[int]]()
    for chosen in itertools.islice(ranges(table), 9):
        schema, job = data_schema(moment_job(data={"ranges": chosen})), target.local_job()
        try:
            job.load("default", schema)
            rows_of, block, _ = point_choice(job, NUM, 0)
        except PolicyError:
            continue
        assert block is not None
        places = job.data.test.row_numbers[rows_of] - 2
        told.extend(frozenset(places[block == k].tolist()) for k in np.unique(block))
    assert len(told) > NUM // MIN_ROWS
    assert min(map(len, told)) >= MIN_ROWS
    assert known(members(told)) == 0
    assert len(members(told)) <= (NUM + NUM // MIN_ROWS) // 2


def test_points_of_jobs_that_are_described_twice(tmp_path: Path) -> None:
    """A job that goes on has points of it dealt beside those of the jobs that began in between, as a new one has."""
    table = rows(NUM, seed=8)
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    target, told = Target(tmp_path, rows(NUM, seed=7), test="\n".join(lines) + "\n"), list[frozenset[int]]()
    begun = [target.local_job() for _ in range(3)]
    for job, chosen in [*zip(begun, ranges(table), strict=False)] * 2:
        job.load("default", data_schema(moment_job(data={"ranges": chosen})))
    for job in begun:
        rows_of, block, _ = point_choice(job, NUM, 0)
        assert block is not None
        places = job.data.test.row_numbers[rows_of] - 2
        told.extend(frozenset(places[block == k].tolist()) for k in np.unique(block))
    assert len(members(told)) < 0.8 * len(begun) * NUM / MIN_ROWS
