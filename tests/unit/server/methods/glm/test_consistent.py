"""What a client tells in one step of a fit binds it in the others; honest sums contradict nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernfed.errors import DataError, NotConvergedError
from kernfed.jobs.job_file import JobFile
from kernfed_testing.methods.glm import finding, fitted, glm_job, rows_of, spoilt


@pytest.mark.parametrize("family", ["binomial", "poisson", "gamma"])
@pytest.mark.parametrize("field", ["deviance", "pearson", "hessian", "numerator"])
def test_a_figure_a_thousand_times_as_large_is_told_of(tmp_path: Path, family: str, field: str) -> None:
    """Its client is left out, or a note says whose figure it is."""
    step = "glm.start" if field == "numerator" else "glm.sums"
    tamper = {("bee", step): spoilt(**{field: lambda a: 1000 * a})}
    outcome = fitted(rows_of(family), glm_job(family), tmp_path, tamper=tamper)
    found = finding(outcome)
    assert found.rows == 73 or any(note.startswith("bee states a ") for note in outcome.notes)


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
@pytest.mark.parametrize("field", ["information", "log_likelihood"])
def test_the_last_answer_is_of_the_same_likelihood(tmp_path: Path, family: str, field: str) -> None:
    """Expected second derivatives and the value follow from the sums at the last coefficients."""
    tamper = {("bee", "glm.end"): spoilt(**{field: lambda a: 2 * a})}
    with pytest.raises(DataError, match=r"a client was lost .* bee \(INVALID_REPLY: GlmEnd: bee states a"):
        fitted(rows_of(family), glm_job(family), tmp_path, tamper=tamper)


def test_a_class_without_rows_contradicts_nothing(tmp_path: Path) -> None:
    """There is no intercept to begin with then, and the end is that of separation."""
    job = glm_job("binomial")
    job = JobFile.model_validate({**job.plan(), "data": {**job.plan()["data"], "unseen_classes": "allow"}})
    rows = {name: replace(r, y_train=0 * r.y_train) for name, r in rows_of("binomial").items()}
    with pytest.raises(NotConvergedError, match="grow without end"):
        fitted(rows, job, tmp_path)
