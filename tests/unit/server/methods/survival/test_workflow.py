"""Curves of survival, end to end on clients in this process: those of lifelines on the pooled rows."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed.columns.plan import ColumnKind, ColumnPlan, MissingRule
from kernfed.errors import DataError, JobError
from kernfed.jobs.job_file import JobFile
from kernfed.methods.survival.finding import ALL, Curve, KaplanMeierFinding
from kernfed.methods.survival.messages import SurvivalTimes
from kernfed.methods.survival.report import curves_overview, curves_section
from kernfed_client.methods.survival.columns import group_name
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import Bench, Outcome, bench, with_rows
from kernfed_testing.methods.personalise import clients
from kernfed_testing.methods.survival import pooled, program, quietly, rows_of, survival_job

NEAR: dict[str, Any] = {"rel": 1e-8, "abs": 1e-8}
GRID = [1.0, 2.5, 4.0, 6.0, 9.0]


def found_of(outcome: Outcome) -> KaplanMeierFinding:
    """Its result."""
    found: KaplanMeierFinding = outcome.model.finding
    return found


def run_on(rows: dict[str, Rows], folder: Path, job: JobFile, **more: Any) -> KaplanMeierFinding:
    """The finding of a job."""
    return found_of(bench(rows, folder, **more).run(job))


def gridded(table: pd.DataFrame, grid: list[float]) -> pd.DataFrame:
    """Rows whose times are moved up to a grid, as one would do in one place."""
    place = np.searchsorted(grid, table.time)
    beyond = place == len(grid)
    return table.assign(time=np.append(grid, grid[-1])[place], event=np.where(beyond, 0.0, table.event))


def same(curve: Curve, table: pd.DataFrame, confidence: float, horizon: float) -> None:
    """Every number of a curve is that of lifelines on these rows, to 1e-8."""
    life, utils = program("lifelines"), program("lifelines.utils")
    fit = quietly(lambda: life.KaplanMeierFitter(alpha=1.0 - confidence).fit(table.time, table.event))
    events = fit.event_table.iloc[1:]  # the first is of time 0
    assert curve.times == pytest.approx(events.index.tolist(), **NEAR)
    assert curve.at_risk == tuple(events.at_risk)
    assert curve.died == tuple(events.observed)
    assert curve.censored == tuple(events.censored)
    survival = fit.survival_function_.iloc[1:, 0].to_numpy()
    assert curve.survival == pytest.approx(survival.tolist(), **NEAR)
    inside = (survival > 1e-12) & (survival < 1)
    limits = fit.confidence_interval_.iloc[1:].to_numpy()
    assert np.array(curve.low)[inside] == pytest.approx(limits[inside].min(axis=1), **NEAR)
    assert np.array(curve.high)[inside] == pytest.approx(limits[inside].max(axis=1), **NEAR)
    assert np.isinf(fit.median_survival_time_) if curve.median is None else curve.median == fit.median_survival_time_
    mean = quietly(lambda: utils.restricted_mean_survival_time(fit, t=horizon))
    assert curve.restricted_mean == pytest.approx(mean, **NEAR)


@pytest.mark.parametrize("grid", [[], GRID], ids=["exact", "grid"])
def test_numbers_are_those_of_lifelines_on_the_pooled_rows(tmp_path: Path, grid: list[float]) -> None:
    """Curves of all rows and of groups with bands, medians, means and log-rank tests, of times as they are or moved."""
    rows = rows_of()
    found = run_on(rows, tmp_path, survival_job("kaplan-meier", by="arm", grid=grid, confidence=0.9))
    table = gridded(pooled(rows), grid) if grid else pooled(rows)
    assert found.groups == ("0", "1", "2")
    assert [curve.group for curve in found.curves] == [ALL, "0", "1", "2"]
    for curve, part in zip(found.curves, [table, *(table[table.arm == arm] for arm in range(3))], strict=True):
        same(curve, part, 0.9, found.horizon)
    statistics = program("lifelines.statistics")
    want = quietly(lambda: statistics.multivariate_logrank_test(table.time, table.arm, table.event))
    assert found.log_rank is not None
    assert found.log_rank.freedom == 2
    assert found.log_rank.statistic == pytest.approx(want.test_statistic, **NEAR)
    assert found.log_rank.p_value == pytest.approx(want.p_value, **NEAR)


def test_the_test_within_sites_is_that_of_statsmodels(tmp_path: Path) -> None:
    """Its strata are the sites."""
    rows = rows_of()
    found = run_on(rows, tmp_path, survival_job("kaplan-meier", by="arm")).log_rank_by_site
    table, duration = pooled(rows), program("statsmodels.duration.survfunc")
    statistic, p_value = duration.survdiff(table.time, table.event, table.arm, strata=table.site)
    assert found is not None
    assert found.statistic == pytest.approx(statistic, **NEAR)
    assert found.p_value == pytest.approx(p_value, **NEAR)


def test_errors_are_those_of_greenwood(tmp_path: Path) -> None:
    """Of a curve at its times by statsmodels; of its mean by the sum over pairs of times, of which the area is made."""
    rows = rows_of()
    curve = run_on(rows, tmp_path, survival_job("kaplan-meier", horizon=5.0)).curves[0]
    table = pooled(rows)
    want = program("statsmodels.duration.survfunc").SurvfuncRight(table.time, table.event)
    errors = dict(zip(curve.times, curve.error, strict=True))
    assert [errors[time] for time in want.surv_times] == pytest.approx(want.surv_prob_se.tolist(), **NEAR)
    t, s, n, d = (np.array(v, dtype=float) for v in (curve.times, curve.survival, curve.at_risk, curve.died))
    widths = np.diff(np.append(np.minimum(t, 5.0), 5.0))
    log_variance = np.cumsum(d / (n * np.maximum(n - d, 1.0)))
    variance = np.minimum.outer(log_variance, log_variance) * np.outer(s * widths, s * widths)
    assert curve.restricted_error == pytest.approx(float(np.sqrt(variance.sum())), **NEAR)


def test_without_censoring_the_curve_is_the_share_of_rows_that_are_left(tmp_path: Path) -> None:
    """No column says that an event did not come: the mean is that of the times, the end is 0."""
    rows = rows_of()
    job = survival_job("kaplan-meier", event="")
    found, time = run_on(rows, tmp_path, job), pooled(rows).time
    (curve,) = found.curves
    assert curve.survival == pytest.approx([float((time > t).mean()) for t in curve.times], **NEAR)
    assert curve.survival[-1] == curve.low[-1] == curve.high[-1] == curve.error[-1] == 0.0
    assert curve.restricted_mean == pytest.approx(time.mean(), **NEAR)
    assert found.log_rank is None


def test_no_count_is_of_few_rows(tmp_path: Path) -> None:
    """At a client with a least number of rows each time stands for so many of one outcome, by the mean of theirs."""
    rows = rows_of({"ant": 60, "bee": 50})
    jobs = clients(rows, tmp_path, ant={"min_rows": 7}, bee={"min_rows": 5})
    told: dict[str, SurvivalTimes] = {}

    def noted(reply: Any) -> Any:
        told[str(reply.num_rows)] = reply
        return reply

    tamper = {(name, "survival.times"): noted for name in rows}
    outcome = Bench(jobs, tamper=tamper).run(survival_job("kaplan-meier", by="arm"))
    for reply, least in ((told["60"], 7), (told["50"], 5)):
        for counts in (reply.deaths, reply.censored):
            assert (counts[counts > 0] >= least).all()
    table = pooled(rows)
    here, there = told["60"], table[(table.site == "ant") & (table.arm == 1)]
    of = here.group == here.groups.index("1")
    assert (here.deaths + here.censored)[of] @ here.times[of] == pytest.approx(there.time.sum(), rel=1e-12)
    exact = run_on(rows, tmp_path / "exact", survival_job("kaplan-meier", by="arm"))
    assert found_of(outcome).curves[0].median == pytest.approx(exact.curves[0].median, rel=0.25)


def test_few_rows_of_an_outcome_or_of_a_group_count_with_the_others(tmp_path: Path) -> None:
    """Three deaths of a group are told as none; a group of four rows is told with the largest; a note says at whom."""
    x = np.zeros((60, 3))
    x[:, 0], x[:, 1] = 1.0, np.repeat([0.0, 1.0, 2.0], [36, 20, 4])
    x[39:56, 0] = 0.0
    rows = {"ant": Rows(x, np.arange(1.0, 61.0), np.zeros((0, 3)), np.zeros(0))}
    job = survival_job("kaplan-meier", by="arm")
    outcome = Bench(clients(rows, tmp_path, ant={"min_rows": 5, "few_values": "allow"})).run(job)
    by_group = {curve.group: (curve.rows, curve.deaths) for curve in found_of(outcome).curves}
    assert by_group == {"all": (60, 40), "0": (40, 40), "1": (20, 0)}
    assert any("ant: some groups, or outcomes of a group, have fewer rows" in note for note in outcome.notes)


def test_a_column_that_tells_no_outcome_is_refused(tmp_path: Path) -> None:
    """The message names the column and the remedy, and no value."""
    rows = rows_of({"bee": 25})
    rows["bee"].x_train[3, 0] = 7.0
    job = survival_job("kaplan-meier")
    with pytest.raises((DataError, JobError), match="column 'event' holds other numbers than 0") as raised:
        bench(rows, tmp_path).run(job)
    assert "7" not in str(raised.value)


def test_a_column_of_many_values_names_no_groups(tmp_path: Path) -> None:
    """A number is no group."""
    rows = rows_of({"ant": 60})
    with pytest.raises((DataError, JobError), match=r"which method\.by names, holds more"):
        bench(rows, tmp_path).run(survival_job("kaplan-meier", by="x"))


@pytest.mark.parametrize(
    ("keys", "data", "says"),
    [
        ({"by": "event"}, {}, "name two columns"),
        ({"by": "lacks"}, {}, "data.features lacks"),
        ({"grid": [3, 2]}, {}, "not in ascending order"),
        ({}, {"task": "binary", "classes": ["0", "1"]}, 'set data.task = "regression"'),
    ],
)
def test_a_wrong_job_says_what_to_change(keys: dict[str, Any], data: dict[str, Any], says: str) -> None:
    """Keys that do not fit each other."""
    with pytest.raises(ValueError, match=says):
        survival_job("kaplan-meier", data=data, **keys)


def test_a_client_that_answers_wrongly_is_left_out(tmp_path: Path) -> None:
    """The curves are of the others' rows, and a note says so."""
    rows, job = rows_of(), survival_job("kaplan-meier")
    for name, tamper in (
        ("nan", lambda reply: replace(reply, times=np.full_like(reply.times, np.nan))),
        ("rows", with_rows(7)),
        ("order", lambda reply: replace(reply, times=reply.times[::-1])),
        ("units", lambda reply: replace(reply, times=reply.times * 1000)),
        ("earlier", lambda reply: replace(reply, times=reply.times * 0.9)),
        ("counts", lambda reply: replace(reply, deaths=reply.deaths + 1)),
        ("groups", lambda reply: replace(reply, group=reply.group + 1)),
    ):
        outcome = bench(rows, tmp_path / name, tamper={("bee", "survival.times"): tamper}).run(job)
        assert found_of(outcome).curves[0].rows == 73, name
        assert any("without bee" in note for note in outcome.notes)


def test_times_beside_the_grid_leave_their_client_out(tmp_path: Path) -> None:
    """Each time is one of the grid's."""
    job, lie = survival_job("kaplan-meier", grid=[2.0, 5.0, 9.0]), lambda reply: replace(reply, times=reply.times * 0.9)
    outcome = bench(rows_of(), tmp_path, tamper={("bee", "survival.times"): lie}).run(job)
    assert any("without bee" in note and "not of the grid" in note for note in outcome.notes)


def test_the_order_of_the_clients_changes_no_bit_and_a_run_goes_on(tmp_path: Path) -> None:
    """Sums are in the order of names; a job that was stopped after its round has the same result."""
    here, job = bench(rows_of(), tmp_path), survival_job("kaplan-meier", by="arm")
    first = here.run(job)
    assert found_of(here.run(job, reverse=True)) == found_of(first)
    again = here.run(job, resumed=first.journal.last)
    assert found_of(again) == found_of(first)


def test_groups_are_named_as_the_job_types_their_column() -> None:
    """Levels of an ordinal column, and whether a boolean holds."""
    ordinal = ColumnPlan(name="arm", kind=ColumnKind.ORDINAL, missing=MissingRule.REFUSE, levels=("low", "high"))
    boolean = replace(ordinal, kind=ColumnKind.BOOLEAN, levels=())
    assert [group_name(v, ordinal) for v in (0.0, 1.0, 0.5)] == ["low", "high", "0.5"]
    assert [group_name(v, boolean) for v in (0.0, 1.0)] == ["false", "true"]


def test_the_report_and_the_file_show_the_curves(tmp_path: Path) -> None:
    """A picture of each group's curve, a line for each in the table, and one for each time in the file."""
    outcome = bench(rows_of(), tmp_path).run(survival_job("kaplan-meier", by="arm"))
    found = found_of(outcome)
    section = curves_section(found)
    assert "Log-rank test of arm: chi-squared" in section.text
    assert "Within sites" in section.text
    assert len(section.charts) == 1
    table = curves_overview(found).table
    assert [row[0] for row in table.rows] == ["all", "0", "1", "2"]
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert KaplanMeierFinding.from_json(found.to_json()) == found
    lines = list(csv.DictReader(io.StringIO(outcome.model.csv())))
    assert len(lines) == sum(len(curve.times) for curve in found.curves)
    assert float(lines[0]["survival"]) == found.curves[0].survival[0]
