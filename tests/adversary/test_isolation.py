"""Jobs by which an operator finds single rows where a client sets no least number of rows, and not where it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from kernfed import rng
from kernfed.errors import DataError
from kernfed.federation.messages.data import DataDescription, Standardised
from kernfed.jobs.job_file import data_schema
from kernfed.jobs.job_sections import FeaturesSection
from kernfed_testing.hostile.adversary import (
    COLUMNS,
    MIN_ROWS,
    ON,
    Target,
    by_difference,
    guards,
    held,
    is_a_row,
    moment_job,
    products,
    rows,
)


@guards
def test_a_batch_of_one_row(tmp_path: Path, policy: str) -> None:
    """One gradient step on a batch of one row."""
    table = rows()
    told = Target(tmp_path, table, policy).ask(moment_job(batch_size=1))
    if held(policy, told):
        assert "batches of 1 rows" in told.refusal
    else:
        assert is_a_row(told.weights, table)


@guards
def test_the_last_batch_of_an_epoch(tmp_path: Path, policy: str) -> None:
    """Sixty rows in batches of 59: the last one has a single row, and one step more than without it tells it."""
    table, target = rows(), Target(tmp_path, rows(), policy)
    tiny: dict[str, Any] = {"batch_size": 59, "learning_rate": 1e-6, "ridge": 1e-9}
    one, two = (target.ask(moment_job(**tiny, local_steps=steps)) for steps in (1, 2))
    found = (two.weights - one.weights) / 1e-6
    near = np.abs(products(table) - found.ravel()).max(axis=1).min()
    if held(policy, one, two):
        assert near > 1e-2
    else:
        assert near < 1e-4


@guards
def test_batches_of_many_seeds(tmp_path: Path, policy: str) -> None:
    """Batches of ten rows whose places everybody can compute: sixty seeds are sixty equations for sixty rows."""
    table = rows()
    target, told, places = Target(tmp_path, table, policy), [], []
    for seed in range(70):
        job = moment_job(batch_size=10).model_copy(update={"seed": seed})
        told.append(target.ask(job))
        drawn = rng.stream(rng.seed(rng.seed(seed, "fedavg", "1"), "batches", "ant"), "ridge", "batches")
        places.append(np.isin(np.arange(60), drawn.permutation(60)[:10]) / 10)
    sums = np.array([one.weights.ravel() for one in told])
    found = np.linalg.lstsq(np.array(places), sums, rcond=None)[0]
    near = np.abs(found - products(table)).max(axis=1)
    different = len(np.unique(sums.round(12), axis=0))
    if held(policy, *told):
        assert near.max() > 1e-2
        assert different <= 60 // MIN_ROWS, "there are no other sums than those of whole blocks"
    else:
        assert near.max() < 1e-9


@guards
def test_two_fractions(tmp_path: Path, policy: str) -> None:
    """Ten rows held out, or eleven: the difference of the means over the others is one row."""
    table, target = rows(), Target(tmp_path, rows(), policy)
    told = [target.ask(moment_job(data={"test_fraction": fraction})) for fraction in (0.0, 1 / 60, 10 / 60, 11 / 60)]
    found = [is_a_row(by_difference(*pair), table) for pair in ((told[0], told[1]), (told[2], told[3]))]
    assert found == [not held(policy, *told)] * 2


@guards
def test_two_seeds(tmp_path: Path, policy: str) -> None:
    """A split that the job draws tells the rows that move from one side to the other; by content none moves."""
    target = Target(tmp_path, rows(), policy)
    drawn = [
        target.ask(moment_job(data={"test_fraction": 0.25, "split": "row-by-row"}).model_copy(update={"seed": seed}))
        for seed in (1, 2)
    ]
    kept = [target.ask(moment_job(data={"test_fraction": 0.25}).model_copy(update={"seed": seed})) for seed in (1, 2)]
    assert kept[0].train == kept[1].train
    if held(policy, *drawn, *kept):
        assert all("policy.drawn_splits" in told.refusal for told in drawn)
    else:
        assert drawn[0].train != drawn[1].train


@guards
def test_two_ranges(tmp_path: Path, policy: str) -> None:
    """Ranges that differ so little that one row lies between them."""
    table, target = rows(), Target(tmp_path, rows(), policy)
    low, high = np.sort(np.array(table["x0"], dtype=float))[[-2, -1]]
    tight, wide = (
        target.ask(moment_job(data={"ranges": {"x0": [-100.0, limit]}})) for limit in ((low + high) / 2, high + 1)
    )
    assert is_a_row(by_difference(wide, tight), table) != held(policy, tight, wide)


@guards
def test_the_last_batches_of_jobs_on_other_rows(tmp_path: Path, policy: str) -> None:
    """Two ranges leave out 39 rows: blocks cut from one order would end with one of 10 rows, and one of 11."""
    table, target, tight = rows(400, seed=7), Target(tmp_path, rows(400, seed=7), policy), {}
    for name in ("x0", "x1"):
        tight[name] = [float(np.sort(np.array(table[name], dtype=float))[19:21].mean()), 99.0]
    told = [target.ask(moment_job(batch_size=10, data=data)) for data in ({}, {"ranges": tight})]
    assert [len(one.train) for one in told] == [400, 361]
    assert bool(told[0].blocks) == held(policy, *told)


@guards
def test_a_gap_in_one_row(tmp_path: Path, policy: str) -> None:
    """A job on the column in which one row has a gap, and a job without that column."""
    table = rows()
    target = Target(tmp_path, {**table, "more": [""] + [1.0] * 59}, policy)
    drops = {"missing": "drop-rows"}
    plain = target.ask(moment_job(data=drops))
    fewer = target.ask(moment_job(data={**drops, "features": [*COLUMNS, "more"]}))
    if held(policy, plain, fewer):
        assert "policy.near_jobs" in fewer.refusal
    else:
        assert is_a_row(len(plain.train) * plain.weights - len(fewer.train) * fewer.weights[:3], table)


@guards
def test_four_jobs_by_two_ranges(tmp_path: Path, policy: str) -> None:
    """Without either, without the first, the second and both: what two limits leave out together is one row."""
    table = rows(400, seed=7)
    target = Target(tmp_path, table, policy)
    tight: dict[str, Any] = {}
    least = []
    for name in ("x0", "x1"):
        values = np.array(table[name], dtype=float)
        least.append(set(np.argsort(values)[:20].tolist()))
        tight[name] = [float(np.sort(values)[19:21].mean()), 99.0]
    assert len(least[0] & least[1]) == 1
    chosen: tuple[dict[str, Any], ...] = ({}, {"x0": tight["x0"]}, {"x1": tight["x1"]}, tight)
    told = [target.ask(moment_job(data={"ranges": ranges})) for ranges in chosen]
    if held(policy, *told):
        assert [bool(one.refusal) for one in told] == [False, False, False, True]
        assert "this job and earlier jobs" in told[3].refusal
    else:
        assert is_a_row(by_difference(told[0], told[1]) - by_difference(told[2], told[3]), table)


@guards
def test_four_jobs_by_gaps_in_two_columns(tmp_path: Path, policy: str) -> None:
    """Two columns with gaps in fifteen rows each, of which one is the same."""
    table = rows(100)
    gaps = {"a": [""] * 15 + [1.0] * 85, "b": [1.0] * 14 + [""] * 15 + [1.0] * 71}
    target = Target(tmp_path, {**table, **gaps}, policy)
    told = [
        target.ask(moment_job(data={"missing": "drop-rows", "features": [*COLUMNS, *more]}))
        for more in ([], ["a"], ["b"], ["a", "b"])
    ]
    if held(policy, *told):
        assert "this job and earlier jobs" in told[3].refusal
    else:
        sums = [len(one.train) * one.weights[:3] for one in told]
        assert is_a_row(sums[0] - sums[1] - sums[2] + sums[3], table)


@guards
def test_a_gap_in_one_row_of_a_file_that_was_written_anew(tmp_path: Path, policy: str) -> None:
    """A nightly export of the same rows does not make a client forget which rows a job used."""
    table = rows()
    target = Target(tmp_path, {**table, "more": [""] + [1.0] * 59}, policy)
    plain = target.ask(moment_job(data={"missing": "drop-rows"}))
    os.utime(tmp_path / "train.csv", (1, 1))
    fewer = target.ask(moment_job(data={"missing": "drop-rows", "features": [*COLUMNS, "more"]}))
    assert bool(fewer.refusal) == held(policy, plain, fewer)


@guards
def test_a_row_that_was_added(tmp_path: Path, policy: str) -> None:
    """The same job before and after one row came, at a site whose jobs wait for rows."""
    after = rows(61)
    before = {name: column[:60] for name, column in after.items()}
    target = Target(tmp_path, before, policy)
    waits = target.file.policy.model_copy(update={"near_jobs": "wait-for-rows"})
    target.file = target.file.model_copy(update={"policy": waits})
    one = target.ask(moment_job())
    target.write(after)
    two = target.ask(moment_job())
    if held(policy, one, two):
        assert "policy.near_jobs" in two.refusal
    else:
        assert is_a_row(by_difference(two, one), after)


@guards
def test_a_class_of_one_row(tmp_path: Path, policy: str) -> None:
    """Gradients have a column per class: that of a class with one row is this row."""
    table = rows(label=["a"] * 30 + ["b"] * 29 + ["rare"])
    classes = {"classes": ["a", "b", "rare"], "unseen_classes": "allow"}
    job = moment_job(data={"task": "classification", "target": "label", **classes})
    told = Target(tmp_path, table, policy).ask(job)
    last = np.array([table[name][-1] for name in COLUMNS], dtype=float)
    [about] = told.of(DataDescription)
    if held(policy, told):
        assert not told.weights[:, 2].any()
        assert "rare" not in about.classes
        assert about.rare_classes_left_out
    else:
        np.testing.assert_allclose(told.weights[:, 2] * 60, last, atol=1e-12)


@guards
def test_a_column_of_names_as_classes(tmp_path: Path, policy: str) -> None:
    """A target of sixty names, all of them guessed."""
    names = [f"name-{i}" for i in range(60)]
    job = moment_job(data={"task": "classification", "target": "name", "classes": names})
    told = Target(tmp_path, rows(name=names), policy).ask(job)
    if held(policy, told):
        assert not told.replies
        assert "does not look like classes" in told.refusal
    else:
        assert told.of(DataDescription)[0].class_counts == (1,) * 60


@pytest.mark.parametrize("guess", ["ann", "nobody"])
def test_a_guess_at_a_name(tmp_path: Path, guess: str) -> None:
    """Whether a guessed name occurs, and how often, is the same to the operator: it is not told."""
    job = moment_job(data={"task": "classification", "target": "name", "classes": [guess, "zoe"]})
    local = Target(tmp_path, rows(name=["ann"] * 20 + ["bob"] * 40)).local_job()
    with pytest.raises(DataError) as caught:
        local.load("default", data_schema(job))
    said = caught.value.public.replace(guess, "GUESS")
    assert not any(char.isdigit() for char in said.replace("train.csv", ""))
    assert said == (
        "data set default, train (train.csv): column 'name': a class that the job does not know (it knows GUESS, zoe); "
        "correct it, or say which class it is in `labels` of [datasets.default.train] in the client file "
        "(this client's log says more)"
    )


@guards
def test_the_errors_of_one_test_row(tmp_path: Path, policy: str) -> None:
    """A test partition of one row: its error would give the target away."""
    target = Target(tmp_path, rows(), policy, test="x0,x1,x2,y\n1.0,2.0,3.0,7.5\n")
    told = target.ask(moment_job(data={"test_fraction": 0.25}))
    measured = told.done.final.pooled.get("global", {})
    if held(policy, told):
        assert not measured
        assert told.test == frozenset()
    else:
        error = np.sqrt(measured["mse"])
        guess = float(np.array([1.0, 2.0, 3.0]) @ told.weights.ravel())
        assert min(abs(guess + error - 7.5), abs(guess - error - 7.5)) < 1e-9


@guards
def test_a_median_distance(tmp_path: Path, policy: str) -> None:
    """The lengthscale by the median is the distance of two rows."""
    table = rows(31)  # an odd number of pairs
    job = moment_job().model_copy(update={"features": FeaturesSection(num_frequencies=5)})
    told = Target(tmp_path, table, policy).ask(job)
    [reply] = told.of(Standardised)
    pairs = pdist(np.array([table[name] for name in COLUMNS]).T)
    assert bool((np.abs(pairs - reply.median_distance) < 1e-9).any()) != held(policy, told)


def test_refusals_leave_nothing(tmp_path: Path) -> None:
    """A client with fewer rows than its policy asks for answers nothing, whatever the method."""
    few: dict[str, Any] = rows(MIN_ROWS - 1)
    told = Target(tmp_path, few, ON).ask(moment_job())
    assert "policy.min_rows" in told.refusal
    assert not told.replies
