"""Proportional hazards, end to end on clients in this process: those of lifelines on the pooled rows, by site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed.errors import DataError, JobError, NotConvergedError
from kernfed.federation.events import EventKind
from kernfed.methods.survival.cox_finding import CoxFinding
from kernfed.methods.survival.cox_messages import CoxEnd
from kernfed.methods.survival.cox_report import cox_overview, cox_section
from kernfed.models.global_model import load_model
from kernfed.tables.records import mixed
from kernfed_client.data.guards.records import Records
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_simulation.federation import from_tables
from kernfed_testing.in_process import Bench, Outcome, bench, with_nan, with_rows
from kernfed_testing.methods.personalise import clients
from kernfed_testing.methods.survival import NAMES, pooled, program, quietly, rows_of, survival_job

NEAR: dict[str, Any] = {"rel": 1e-8, "abs": 1e-8}
COLUMNS = ["arm", "x"]
PRECISE = {"precision": 1e-13, "r_precision": 1e-14}


def found_of(outcome: Outcome) -> CoxFinding:
    """Its result."""
    told = [e.finding for e in outcome.journal.events if e.kind is EventKind.FINDING and e.message == CoxFinding.name]
    assert told[-1] is not None
    return CoxFinding.from_json(told[-1])


def lifelines_fit(table: pd.DataFrame, *, alpha: float = 0.05, **more: Any) -> Any:
    """The fit of all rows in one place, each site a stratum."""
    fitter = program("lifelines").CoxPHFitter(alpha=alpha)
    columns = [*COLUMNS, "time", "event", "site"]
    return quietly(lambda: fitter.fit(table[columns], "time", "event", strata=["site"], fit_options=PRECISE, **more))


def same(found: CoxFinding, want: Any) -> None:
    """Coefficients and what is told of each are those of lifelines, to 1e-8."""
    table = want.summary
    assert [c.name for c in found.coefficients] == list(table.index)
    for name, column in (
        ("estimate", "coef"),
        ("error", "se(coef)"),
        ("statistic", "z"),
        ("p_value", "p"),
        ("low", f"coef lower {found.confidence:.0%}"),
        ("high", f"coef upper {found.confidence:.0%}"),
    ):
        assert [getattr(c, name) for c in found.coefficients] == pytest.approx(table[column].tolist(), **NEAR)
    assert np.array(found.covariance) == pytest.approx(want.variance_matrix_.to_numpy(), **NEAR)
    assert found.log_likelihood == pytest.approx(want.log_likelihood_, **NEAR)
    assert found.aic == pytest.approx(want.AIC_partial_, **NEAR)
    assert found.concordance == pytest.approx(want.concordance_index_, **NEAR)


def test_numbers_are_those_of_lifelines_on_the_pooled_rows(tmp_path: Path) -> None:
    """Coefficients, errors, tests, intervals, likelihoods, concordance and baselines, with ties by Efron's rule."""
    rows = rows_of()
    found = found_of(bench(rows, tmp_path).run(survival_job("cox", confidence=0.9)))
    want = lifelines_fit(pooled(rows), alpha=0.1)
    same(found, want)
    tested = quietly(want.log_likelihood_ratio_test)
    assert found.likelihood_ratio == pytest.approx(tested.test_statistic, **NEAR)
    assert found.p_value == pytest.approx(tested.p_value, **NEAR)
    for site, baseline in found.baselines.items():
        hazard = want.baseline_cumulative_hazard_[site].dropna()
        assert hazard.loc[list(baseline.times)].tolist() == pytest.approx(baseline.hazard, **NEAR)
        assert hazard.max() == pytest.approx(baseline.hazard[-1], **NEAR)


def test_breslows_rule_is_that_of_statsmodels(tmp_path: Path) -> None:
    """The other rule for ties."""
    rows = rows_of()
    table, api = pooled(rows), program("statsmodels.api")
    found = found_of(bench(rows, tmp_path).run(survival_job("cox", ties="breslow")))
    fit = api.PHReg(table.time, table[COLUMNS], status=table.event, strata=table.site, ties="breslow").fit()
    assert [c.estimate for c in found.coefficients] == pytest.approx(fit.params.tolist(), **NEAR)
    assert [c.error for c in found.coefficients] == pytest.approx(fit.bse.tolist(), **NEAR)
    assert found.log_likelihood == pytest.approx(fit.llf, **NEAR)


def test_robust_errors_are_those_of_lifelines(tmp_path: Path) -> None:
    """By rows, without ties, for which lifelines has another rule."""
    rows = rows_of(digits=9)
    found = found_of(bench(rows, tmp_path).run(survival_job("cox", errors="robust")))
    want = lifelines_fit(pooled(rows), robust=True)
    assert found.errors == "robust by row"
    assert [c.error for c in found.coefficients] == pytest.approx(want.standard_errors_.tolist(), **NEAR)


def test_robust_errors_by_group_are_those_of_lifelines(tmp_path: Path) -> None:
    """Rows of a patient count together, in the one stratum for which lifelines has groups in their order."""
    rows = rows_of({"ant": 60}, digits=9)["ant"]
    group, numbers = np.arange(60) // 3, np.arange(1, 61)
    records = Records.of_words(mixed(group.astype(np.uint64)), group)
    part = PartitionData(rows.x_train, None, rows.y_train, 0, numbers, records=records)
    job = survival_job("cox", NAMES, errors="robust")
    found = found_of(Bench(from_tables({"ant": (part, None)}, tmp_path)).run(job))
    table, fitter = pooled({"ant": rows}).assign(patient=group), program("lifelines").CoxPHFitter()
    columns = [*COLUMNS, "time", "event", "patient"]
    want = quietly(
        lambda: fitter.fit(table[columns], "time", "event", cluster_col="patient", robust=True, fit_options=PRECISE)
    )
    assert (found.errors, found.groups) == ("robust by group", 20)
    assert [c.error for c in found.coefficients] == pytest.approx(want.standard_errors_.tolist(), **NEAR)


def test_the_model_predicts_relative_hazards(tmp_path: Path) -> None:
    """Those of lifelines, from rows without the column of the event."""
    rows = rows_of()
    outcome = bench(rows, tmp_path).run(survival_job("cox"))
    outcome.model.save(tmp_path / "model")
    model, table = load_model(tmp_path / "model"), pooled(rows)
    assert model.feature_names == tuple(COLUMNS)
    want = lifelines_fit(table).predict_partial_hazard(table).to_numpy()
    assert model.predict(table[COLUMNS].to_numpy()) == pytest.approx(want, rel=1e-7)
    lines = (tmp_path / "model" / "coefficients-table.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["name", *COLUMNS]


def test_no_hazard_is_of_few_rows(tmp_path: Path) -> None:
    """At a client with a least number of rows each increment is of so many events, while so many rows are at risk."""
    rows, told = rows_of({"ant": 60, "bee": 50}), {}

    def noted(reply: Any) -> Any:
        told["end"] = reply
        return reply

    jobs = clients(rows, tmp_path, ant={"min_rows": 7})
    outcome = Bench(jobs, tamper={("ant", "cox.end"): noted}).run(survival_job("cox"))
    end: CoxEnd = told["end"]
    assert end.deaths.min() >= 7
    table = pooled(rows)
    ant = table[table.site == "ant"]
    assert (ant.time >= end.times[-1]).sum() >= 7
    exact = found_of(bench(rows, tmp_path / "exact").run(survival_job("cox")))
    assert [c.estimate for c in found_of(outcome).coefficients] == [c.estimate for c in exact.coefficients]
    last = int(end.deaths.sum())
    hazard = dict(zip(exact.baselines["ant"].times, exact.baselines["ant"].hazard, strict=True))
    when = np.sort(ant.time[ant.event == 1])[last - 1]
    assert end.hazards.sum() == pytest.approx(hazard[when], rel=0.2)


def test_without_a_maximum_the_columns_are_named(tmp_path: Path) -> None:
    """The event comes first in the rows of an arm, and in no other."""
    rows = rows_of()
    for part in rows.values():
        part.x_train[:, 1] = np.where(part.x_train[:, 0] == 1, 1.0, 0.0)
    with pytest.raises(NotConvergedError, match="coefficients of arm grow without end"):
        bench(rows, tmp_path).run(survival_job("cox"))


def test_a_column_of_the_same_value_at_each_client_is_named(tmp_path: Path) -> None:
    """It differs between clients alone, and each has its own baseline."""
    rows = rows_of()
    for value, part in enumerate(rows.values()):
        part.x_train[:, 1] = value
    with pytest.raises(DataError, match="column arm is 0, or the same in every row, among the rows of each client"):
        bench(rows, tmp_path).run(survival_job("cox"))


def test_no_event_is_an_error(tmp_path: Path) -> None:
    """There is nothing to learn."""
    rows = rows_of()
    for part in rows.values():
        part.x_train[:, 0] = 0.0
    with pytest.raises(DataError, match="no client has enough rows in which the event came"):
        bench(rows, tmp_path).run(survival_job("cox"))


def test_few_events_are_noted(tmp_path: Path) -> None:
    """A rule of thumb asks for ten for each coefficient."""
    outcome = bench(rows_of({"ant": 20}), tmp_path).run(survival_job("cox"))
    assert any("events for 2 coefficients, fewer than 10 for each" in note for note in outcome.notes)


@pytest.mark.parametrize("method", ["cox", "kaplan-meier"])
def test_times_below_0_are_noted(tmp_path: Path, method: str) -> None:
    """Where the mean of as many least times as the policy says is below 0: no note is of fewer rows."""
    rows = rows_of({"ant": 30, "bee": 30})
    rows["ant"].y_train[:3], rows["bee"].y_train[:3] = -40.0, -0.01
    jobs = clients(rows, tmp_path, ant={"min_rows": 7}, bee={"min_rows": 7})
    notes = Bench(jobs).run(survival_job(method)).notes
    assert [note for note in notes if "below 0" in note] == [
        "ant: some times are below 0; data.target is to be the time since the row was first seen"
    ]


def test_a_job_needs_a_column_beside_the_event(tmp_path: Path) -> None:
    """The message says where to add one."""
    rows = {name: replace(r, x_train=r.x_train[:, :1], x_test=r.x_test[:, :1]) for name, r in rows_of().items()}
    with pytest.raises(DataError, match="no column beside the event's, 'event'; add columns to it"):
        bench(rows, tmp_path).run(survival_job("cox", features=["event"]))


def test_rounds_that_are_used_up_are_told(tmp_path: Path) -> None:
    """The result is there, and the end says what is left."""
    outcome = bench(rows_of(), tmp_path).run(survival_job("cox", rounds=2))
    assert found_of(outcome).iterations == 2
    assert any("all 2 rounds are used up" in note for note in outcome.notes)


def test_a_client_that_answers_wrongly_is_out_of_the_problem(tmp_path: Path) -> None:
    """The coefficients are those of the others' rows."""
    rows, job = rows_of(), survival_job("cox")
    others = found_of(bench({name: rows[name] for name in ("ant", "cat")}, tmp_path / "others").run(job))
    for name, tamper in (
        ("nan", with_nan),
        ("rows", with_rows(7)),
        ("curve", lambda reply: replace(reply, hessian=-reply.hessian)),
        ("steep", lambda reply: replace(reply, hessian=1000 * reply.hessian)),
        ("loss", lambda reply: replace(reply, loss=1000 * reply.loss)),
        ("deaths", lambda reply: replace(reply, deaths=99)),
    ):
        outcome = bench(rows, tmp_path / name, tamper={("bee", "cox.sums"): tamper}).run(job)
        found = found_of(outcome)
        assert found.rows == 73, name
        want = [c.estimate for c in others.coefficients]
        assert [c.estimate for c in found.coefficients] == pytest.approx(want, **NEAR)


def test_a_client_that_is_lost_at_the_end_fails_the_job(tmp_path: Path) -> None:
    """Its answer to the last step cannot be: pairs in order that are no pairs."""
    lie = {("bee", "cox.end"): lambda reply: replace(reply, concordant=reply.pairs + 1)}
    with pytest.raises((DataError, JobError), match="a client was lost while standard errors were computed, bee "):
        bench(rows_of(), tmp_path, tamper=lie).run(survival_job("cox"))


def test_times_of_a_baseline_are_those_that_were_stated(tmp_path: Path) -> None:
    """A thousand times as large they are not of rows with the mean and the deviation of before round 1."""
    lie = {("bee", "cox.end"): lambda reply: replace(reply, times=1000 * reply.times)}
    with pytest.raises(
        DataError, match=r"bee \(INVALID_REPLY: CoxEnd: bee states times that lie .* and stated times with mean"
    ):
        bench(rows_of(), tmp_path, tamper=lie).run(survival_job("cox"))


def test_a_baseline_far_beyond_all_others_is_told_of(tmp_path: Path) -> None:
    """It is the client's own, and changes nothing else."""
    lie = {("bee", "cox.end"): lambda reply: replace(reply, hazards=1000 * reply.hazards)}
    outcome = bench(rows_of(), tmp_path, tamper=lie).run(survival_job("cox"))
    assert any("bee states a baseline hazard by event of" in note for note in outcome.notes)
    honest = bench(rows_of(), tmp_path / "honest").run(survival_job("cox"))
    assert found_of(outcome).coefficients == found_of(honest).coefficients
    assert not any("baseline hazard by event" in note for note in honest.notes)


def test_scores_far_beyond_all_others_are_told_of(tmp_path: Path) -> None:
    """They make robust errors too large; they count, and a note says whose."""
    lie = {("bee", "cox.end"): lambda reply: replace(reply, scores=1000 * reply.scores)}
    outcome = bench(rows_of(), tmp_path, tamper=lie).run(survival_job("cox", errors="robust"))
    assert any("bee states a square of scores by row of" in note for note in outcome.notes)
    honest = bench(rows_of(), tmp_path / "honest").run(survival_job("cox", errors="robust"))
    assert not any("square of scores" in note for note in honest.notes)


def test_a_job_may_ask_for_no_baseline(tmp_path: Path) -> None:
    """There is none then, and nothing to compare."""
    found = found_of(bench(rows_of(), tmp_path).run(survival_job("cox", baseline=False)))
    assert found.baselines == {}


def test_the_order_of_the_clients_changes_no_bit_and_a_run_goes_on(tmp_path: Path) -> None:
    """Sums are in the order of names; a job that was stopped within its rounds has the same result."""
    here, job = bench(rows_of(), tmp_path), survival_job("cox")
    first = here.run(job)
    assert found_of(here.run(job, reverse=True)) == found_of(first)
    stopped = here.run(job, stop_before=3)
    assert stopped.stopped
    again = here.run(job, resumed=stopped.journal.last)
    assert found_of(again) == found_of(first)
    assert again.model.model.weights.tobytes() == first.model.model.weights.tobytes()


def test_the_report_shows_hazard_ratios(tmp_path: Path) -> None:
    """A line for each column, and a picture of the baselines."""
    found = found_of(bench(rows_of(), tmp_path).run(survival_job("cox")))
    section = cox_section(found)
    assert "98 rows" in section.text
    assert "Concordance 0." in section.text
    assert [chart.title for chart in section.charts] == ["Cumulative baseline hazard over time"]
    table = cox_overview(found).table
    line = dict(zip(table.columns, table.rows[1], strict=True))
    assert float(line["hazard ratio"]) == pytest.approx(np.exp(found.coefficients[1].estimate), rel=1e-3)
