"""Times of single rows, asked for by one grid after another: a client with a least number of rows tells none."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kernfed.jobs.job_file import JobFile
from kernfed.methods.survival.messages import SurvivalTimes
from kernfed_testing.hostile.adversary import MIN_ROWS, Target, guards, held, rows


def job_with(grid: list[float], **keys: str) -> JobFile:
    """Curves of times y with the event `died`."""
    method = {"name": "kaplan-meier", "event": "died", "grid": grid, **keys}
    data = {"task": "regression", "target": "y", "features": ["died", "arm"]}
    return JobFile.model_validate({"name": "s", "method": method, "data": data})


@guards
def test_grids_that_differ_by_one_row(tmp_path: Path, policy: str) -> None:
    """Two grids with an edge before a row's time and behind it: the counts below differ by that row, or by none."""
    table = rows(died=[1, 1, 0] * 20, arm=[0, 1] * 30)
    table["y"] = (0.5 + np.random.default_rng(3).permutation(60)).tolist()
    target = Target(tmp_path, table, policy)
    below = []
    for edge in (29.25, 30.25, 30.75, 31.25):
        told = target.ask(job_with([edge, 100.0]))
        (found,) = told.of(SurvivalTimes)
        below.append(int((found.deaths + found.censored)[found.times <= edge].sum()))
    apart = np.abs(np.diff(below))
    if held(policy, told):
        assert all(step == 0 or step >= MIN_ROWS for step in apart)
        assert (found.deaths[found.deaths > 0] >= MIN_ROWS).all()
    else:
        assert 1 in apart


@guards
def test_an_outcome_of_few_rows_of_a_group(tmp_path: Path, policy: str) -> None:
    """Three rows of an arm died; where few rows are not told of, their arm has no deaths."""
    died, arm = [0] * 27 + [1] * 3 + [0, 1] * 15, [0] * 30 + [1] * 30
    target = Target(tmp_path, rows(died=died, arm=arm, y=(1.0 + np.arange(60)).tolist()), policy)
    told = target.ask(job_with([], by="arm"))
    (found,) = told.of(SurvivalTimes)
    of = found.group == found.groups.index("0")
    assert int(found.deaths[of].sum()) == (0 if held(policy, told) else 3)
