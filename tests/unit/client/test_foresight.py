"""What a site is told of a job before it, beside what became of the job."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from kernfed.errors import PolicyError
from kernfed.jobs.job_sections import FeaturesSection
from kernfed_client.check_data import check_data
from kernfed_client.data.guards.dealt_blocks import Dealing
from kernfed_testing.hostile.adversary import ON, Target, foreseen, moment_job, rows


@pytest.mark.parametrize(
    ("policy", "refused"), [(ON, True), (f'{ON}\nnear_jobs = "allow"', False), ("min_rows = 1", False)]
)
def test_rows_near_those_of_an_earlier_job_are_foreseen(tmp_path: Path, policy: str, refused: bool) -> None:
    """A second target lacks two values: check-data and the job agree, and to look leaves no trace."""
    table = dict(rows(60))
    target = Target(tmp_path, {**table, "z": [*table["y"][:-2], "", ""]}, policy)
    first = moment_job(data={"missing": "drop-rows"})
    second = moment_job(data={"missing": "drop-rows", "target": "z"})
    assert not foreseen(target, second)
    assert target.ask(first).refusal == ""
    before = foreseen(target, second)
    refusal = target.ask(second).refusal
    assert bool(before) == bool(refusal) == refused
    assert before in refusal


@pytest.mark.parametrize(("lengthscale", "refused"), [(1.0, True), (1e3, True), (1e8, False)])
def test_columns_that_features_hardly_see_are_foreseen(tmp_path: Path, lengthscale: float, refused: bool) -> None:
    """A lengthscale far beyond the columns is no reason, in scaled columns as in the job."""
    draw = np.random.default_rng(2)
    table = {**rows(60), "x0": (draw.uniform(size=60) < 0.5).astype(int).tolist()}
    table |= {"x1": (np.arange(60) % 15 == 0).astype(int).tolist()}
    target = Target(tmp_path, table, f'{ON}\nsparse_columns = "allow"')
    section = FeaturesSection(num_frequencies=20, lengthscale=lengthscale)
    job = moment_job(data={"features": ["x0", "x1"]}).model_copy(update={"features": section})
    before = foreseen(target, job)
    refusal = target.ask(job).refusal
    assert bool(before) == bool(refusal) == refused
    assert before in refusal


def test_blocks_that_are_used_up_are_a_note_like_any_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site sees the rows and columns of its data all the same."""

    def used_up(*_: object) -> NoReturn:
        raise PolicyError("no block is left")

    monkeypatch.setattr(Dealing, "deal", used_up)
    lines = ["x,y", *(f"{i},{i % 7}" for i in range(60))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "client.toml").write_text('[datasets.default.train]\npath = "rows.csv"\n')
    (tmp_path / "job.toml").write_text(
        'name = "j"\n[method]\nname = "local"\n[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["x"]\n'
    )
    report = check_data(tmp_path / "job.toml", tmp_path / "client.toml", "ant")
    assert "the policy here would refuse this job: no block is left" in report.notes
    assert report.num_rows + report.num_test_rows == 60
