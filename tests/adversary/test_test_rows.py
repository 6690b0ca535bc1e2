"""Errors of several models over the same test rows, from which sums over the columns of these rows follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.federation.messages.evaluation import Appraisal, Evaluation
from kernfed_testing.hostile.adversary import MIN_ROWS, ON, Target, moment_job, rows, told_open
from kernfed_testing.hostile.sparse import SPARSE_OFF, sparse_guards


def moments_of_test_rows(
    target: Target, columns: Sequence[str], num_rows: int, **data: object
) -> tuple[Floats, Floats]:
    """Σ x x' and Σ x y over the test rows, by the errors of nine models whose weights the operator gets.

    Σ (y - w'x)² is linear in what is not known: Σ y², Σ x y and Σ x x'.
    """
    equations, errors = [], []
    upper = np.triu_indices(len(columns))
    twice = np.where(upper[0] == upper[1], 1.0, 2.0)
    for steps in (1, 2, 4):
        for rate in (0.3, 0.8, 1.3):
            job = moment_job(data={"features": list(columns), **data}, local_steps=steps, learning_rate=rate)
            told = target.ask(job)
            w = told.weights.ravel()
            equations.append([1.0, *(-2 * w), *(np.outer(w, w)[upper] * twice)])
            errors.append(told.done.final.pooled["global"]["mse"] * num_rows)
    found = np.linalg.lstsq(np.array(equations), np.array(errors), rcond=None)[0]
    second = np.zeros((len(columns), len(columns)))
    second[upper] = second.T[upper] = found[1 + len(columns) :]
    return second, found[1 : 1 + len(columns)]


@sparse_guards
@pytest.mark.parametrize(("num_rows", "num_marked"), [(20, 1), (20, 2), (100, 9)])
def test_few_test_rows_that_have_a_mark(tmp_path: Path, policy: str, num_rows: int, num_marked: int) -> None:
    """Sums over a mark that one of twenty test rows has, or nine of a hundred, are those of these."""
    table = rows(mark=[float(i % 2) for i in range(60)])
    tests = rows(num_rows, seed=9, mark=[1.0] * num_marked + [0.0] * (num_rows - num_marked))
    lines = [",".join(tests), *(",".join(map(str, row)) for row in zip(*tests.values(), strict=True))]
    target = Target(tmp_path, table, policy, test="\n".join(lines) + "\n")
    second, with_target = moments_of_test_rows(target, ["mark", "x0"], num_rows)
    own = [sum(float(str(value)) for value in tests[name][:num_marked]) for name in ("x0", "y")]
    found = [second[0, 1], with_target[0]]
    assert (np.abs(np.subtract(found, own)).max() < 1e-6) == (policy == SPARSE_OFF)
    if policy == ON:
        np.testing.assert_allclose(found, 0, atol=1e-6)


@pytest.mark.parametrize("policy", [ON, f'{ON}\nsparse_columns = "constant-in-tests"'])
def test_five_of_fifty_test_rows_are_told_of_unless_the_site_says_otherwise(tmp_path: Path, policy: str) -> None:
    """The site is told so before the job, with the column and what holds it off; then it holds."""
    table = rows(mark=[float(i % 2) for i in range(60)])
    tests = rows(50, seed=9, mark=[1.0] * 5 + [0.0] * 45)
    lines = [",".join(tests), *(",".join(map(str, row)) for row in zip(*tests.values(), strict=True))]
    target = Target(tmp_path, table, policy, test="\n".join(lines) + "\n")
    before = told_open(target, moment_job(data={"features": ["mark", "x0"]}))
    second, with_target = moments_of_test_rows(target, ["mark", "x0"], 50)
    own = [sum(float(str(value)) for value in tests[name][:5]) for name in ("x0", "y")]
    told = bool(np.abs(np.subtract([second[0, 1], with_target[0]], own)).max() < 1e-6)
    assert told == (policy == ON)
    assert [("column 'mark'" in note, "rows 2, 3, 4, 5, 6 of" in note) for note in before] == [(True, True)] * told


@pytest.mark.parametrize("policy", ['near_jobs = "allow"', ON])
def test_a_gap_among_rows_to_train_and_to_test_on(tmp_path: Path, policy: str) -> None:
    """A job trains on all rows, another trains and is measured on all but one: what is left over is this one."""
    table, place = rows(), 33
    more: list[float | str] = list(np.random.default_rng(3).normal(size=60))
    more[place] = ""
    target = Target(tmp_path, {**table, "more": more}, policy)
    whole = target.ask(moment_job(data={"features": ["x0"]}))
    split = {"missing": "drop-rows", "test_fraction": 0.25}
    part = target.ask(moment_job(data={"features": ["x0", "more"], **split}))
    if policy == ON:
        assert "train and are measured on" in part.refusal
        assert not part.of(Evaluation)
        assert not part.of(Appraisal)
        return
    assert len(whole.train - part.train) > MIN_ROWS
    assert len(whole.train - part.train - part.test) == 1
    _, tested = moments_of_test_rows(target, ["x0", "more"], len(part.test), **split)
    found = len(whole.train) * whole.weights[0, 0] - len(part.train) * part.weights[0, 0] - tested[0]
    assert found == pytest.approx(float(str(table["x0"][place])) * float(str(table["y"][place])), abs=1e-6)


@pytest.mark.parametrize(("num_positive", "told"), [(7, False), (13, True)])
def test_scores_of_few_positive_test_rows(tmp_path: Path, num_positive: int, told: bool) -> None:
    """No number of fewer test rows than the policy says leaves with a job's scores, and their count does not either."""

    def labelled(num: int, num_sick: int, seed: int) -> dict[str, Sequence[object]]:
        return rows(num, seed) | {"y": ["sick"] * num_sick + ["well"] * (num - num_sick)}

    tests = labelled(60, num_positive, 9)
    lines = [",".join(tests), *(",".join(map(str, row)) for row in zip(*tests.values(), strict=True))]
    target = Target(tmp_path, labelled(80, 30, 5), ON, test="\n".join(lines) + "\n")
    job = moment_job(data={"features": ["x0"], "task": "binary", "classes": ["well", "sick"]})
    (answer,) = target.ask(job).of(Appraisal)
    assert (answer.told_positive, answer.num_positive) == (told, num_positive if told else 0)
    assert min(score.behind for score in answer.scores) >= MIN_ROWS
    metrics = {score.metric for score in answer.scores}
    assert ("auc" in metrics) == told
    assert len(metrics & {"sensitivity", "specificity", "ppv", "npv"}) in (0, 4)  # three of them tell the fourth
    assert told or {"auc", "sensitivity"} <= set(answer.left_out)
