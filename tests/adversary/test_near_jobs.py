"""Two jobs on two names of one table: their means differ by enough rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kernfed.jobs.client_file import ClientFile
from kernfed.jobs.job_file import data_schema
from kernfed_testing.hostile.adversary import (
    MIN_ROWS,
    NEAR_OFF,
    Target,
    by_difference,
    is_a_row,
    moment_job,
    near_guards,
    rows,
    write_rows,
)


@near_guards
def test_two_names_of_one_table(tmp_path: Path, policy: str) -> None:
    """A second data set is the first and one row more: the difference of two jobs' means is this row."""
    whole = rows(61)
    target = Target(tmp_path, {name: column[:60] for name, column in whole.items()}, policy)
    sets = {**target.file.datasets, "more": {"train": {"path": write_rows(tmp_path / "more.csv", whole)}}}
    file = ClientFile.model_validate({"state": target.file.state, "datasets": sets})
    target.file = target.file.model_copy(update={"datasets": file.datasets})
    one = target.ask(moment_job())
    job = moment_job()
    two = target.ask(job.model_copy(update={"cohort": job.cohort.model_copy(update={"dataset": "more"})}))
    if policy == NEAR_OFF:
        assert is_a_row(by_difference(two, one), whole)
    else:
        assert "policy.near_jobs" in two.refusal


def test_ranges_on_rows_with_gaps_are_no_near_jobs(tmp_path: Path) -> None:
    """A limit leaves out tens of the rows that the job would have, so honest ranges beside gaps are not refused."""
    table = rows(200)
    for place in range(0, 200, 5):
        table["x1"][place] = ""  # type: ignore[index]  # a list
    target, values = Target(tmp_path, table), np.sort(np.array(table["x0"]))
    for num in range(0, 60, 12):
        data = {"missing": "drop-rows", "ranges": {"x0": [float(values[num]), 9.0]}}
        found = target.local_job().load("default", data_schema(moment_job(data=data)))
        assert found.train.num_rows % MIN_ROWS == 0
