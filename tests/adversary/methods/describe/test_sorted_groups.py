"""Statistics by which single rows are found where a client sets no least number of rows, and not where it does."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from kernfed.jobs.job_file import JobFile
from kernfed.methods.describe.messages import ColumnsDescribed, PairsDescribed
from kernfed_testing.hostile.adversary import COLUMNS, MIN_ROWS, OFF, Target, guards, held, rows
from kernfed_testing.hostile.many_sets import NUM, known, ranges

GROUPS = "kernfed_server.methods.describe.workflow.NUM_GROUPS"


def job_on(*columns: str, **more: str | Mapping[str, Sequence[float]]) -> JobFile:
    """Statistics of columns, with y for the target; more keys are of [data]."""
    data = {"task": "regression", "target": "y", "features": list(columns), **more}
    return JobFile.model_validate({"name": "d", "method": {"name": "describe"}, "data": data})


@guards
def test_groups_of_many_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """Sums over the smallest k rows for as many k as there are groups to ask for: neighbours' differ by one row."""
    table, target = rows(), Target(tmp_path, rows(), policy)
    ends: set[int] = set()
    for num in (1, 2, 3, 4, 5, 7, 11, 59, 100):
        monkeypatch.setattr(GROUPS, num)
        told = target.ask(job_on(*COLUMNS))
        (found,) = told.of(ColumnsDescribed)
        ends.update(np.cumsum(found.group_rows).tolist())
        sizes = found.group_rows
    single = np.isin(np.sort(np.array(table["x0"], dtype=float)), found.group_means[:, 0]).any()
    if held(policy, told):
        assert all(end % MIN_ROWS == 0 for end in ends)
        assert sizes.min() >= MIN_ROWS
        assert not single
    else:
        assert single


@guards
def test_a_least_and_a_greatest_value(tmp_path: Path, policy: str) -> None:
    """The outermost values of a column are those of single rows."""
    table, target = rows(), Target(tmp_path, rows(), policy)
    told = target.ask(job_on(*COLUMNS))
    (found,) = told.of(ColumnsDescribed)
    x = np.array(table["x0"], dtype=float)
    assert (found.smallest[0] == x.min()) == (not held(policy, told))
    assert (found.greatest[0] == x.max()) == (not held(policy, told))


@guards
def test_a_value_and_a_gap_of_few_rows(tmp_path: Path, policy: str) -> None:
    """Four rows of 60 have a third value, and one has a gap."""
    level = [0.0] * 30 + [1.0] * 26 + [2.0] * 4
    target = Target(tmp_path, {**rows(), "level": level, "gap": [""] + [1.0, 2.0] * 29 + [1.0]}, policy)
    told = target.ask(job_on("x0", "level", "gap", missing="drop-rows"))
    (found,) = told.of(ColumnsDescribed)
    counts, gaps = found.value_counts[1].counts, found.gaps[2]
    if held(policy, told):
        assert sum(counts) == 59
        assert min(counts) >= MIN_ROWS
        assert gaps == 0
    else:
        assert counts == (29, 26, 4)
        assert gaps == 1


@guards
def test_a_combination_of_few_rows(tmp_path: Path, policy: str) -> None:
    """Means and a correlation of two marks tell in how many rows both are set: here in three."""
    draw = np.random.default_rng(2)
    one, two = np.zeros(60), np.zeros(60)
    one[:20], two[17:40] = 1, 1
    order = draw.permutation(60)
    target = Target(tmp_path, {**rows(), "one": one[order].tolist(), "two": two[order].tolist()}, policy)
    told = target.ask(job_on("one", "two"))
    (columns,), (pairs,) = told.of(ColumnsDescribed), told.of(PairsDescribed)
    covariance = pairs.correlations[0, 1] * columns.deviation[0] * columns.deviation[1]
    both = 60 * (covariance + columns.mean[0] * columns.mean[1])
    assert both == pytest.approx(3 if policy == OFF else 0, abs=1e-9)
    held(policy, told)


@guards
def test_groups_of_many_sets_of_rows(tmp_path: Path, policy: str) -> None:
    """Where a set lacks a block, groups shift by single rows: sums differ by two rows, and none is known by that."""
    table = rows(NUM)
    target, x = Target(tmp_path, table, policy), np.array(table["x0"], dtype=float)
    asked, groups = [], []
    for limits in itertools.islice(ranges(table), 12):
        asked.append(target.ask(job_on(*COLUMNS, **({"ranges": limits} if limits else {}))))
        (found,) = asked[-1].of(ColumnsDescribed)
        places = np.array(sorted(asked[-1].train)) - 2  # lines of a file with a header
        ranked = places[np.argsort(x[places])]
        groups += [np.isin(np.arange(NUM), part) for part in np.split(ranked, np.cumsum(found.group_rows)[:-1])]
    assert (known(np.array(groups, dtype=float)) == 0) == held(policy, *asked)
