"""Two jobs on two names of one table: their means differ by enough rows."""

from __future__ import annotations

from pathlib import Path

from kernfed.jobs.client_file import ClientFile
from kernfed_testing.adversary import (
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
