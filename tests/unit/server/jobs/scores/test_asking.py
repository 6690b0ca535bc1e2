"""Clients are asked once, at the end, for errors of the scores that they told; nothing else hangs on the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import PolicyError
from kernfed.federation.events import EventKind, RoundMetrics
from kernfed.federation.messages.evaluation import Appraisal
from kernfed.methods.scores import ClientScores, GainOf, ScoreOf, ScoresFinding
from kernfed_server.jobs.scores.asking import as_told
from kernfed_testing.in_process import Outcome, bench, make_job, regression_rows
from kernfed_testing.methods.scores import disease_rows

SIZES = {"ant": 90, "bee": 80, "cat": 100}


def published(outcome: Outcome) -> ScoresFinding:
    """The finding that the run left."""
    events = [e for e in outcome.journal.events if e.kind is EventKind.FINDING and e.message == ScoresFinding.name]
    assert len(events) == 1
    assert events[0].finding is not None
    return ScoresFinding.from_json(events[0].finding)


@pytest.mark.parametrize("method", ["dkrr", "local"])
def test_scores_with_errors_are_those_of_the_last_round(tmp_path: Path, method: str) -> None:
    """Each client's numbers are its last metrics, and the means are over all of them."""
    outcome = bench(disease_rows(SIZES), tmp_path, classes=("no", "yes")).run(make_job(method, task="binary"))
    finding, last = published(outcome), outcome.metrics[-1]
    assert finding.behind == "3 of 3 clients, 150 of 150 measured rows"
    for client in finding.clients:
        for score in client.scores:
            if score.metric in last.clients[client.client][score.model]:
                assert score.value == pytest.approx(last.clients[client.client][score.model][score.metric])
            assert score.low <= score.value <= score.high
    over = {(o.model, o.metric): o for o in finding.pooled}
    model = "global" if method == "dkrr" else "local"
    assert over[model, "auc"].pooled == pytest.approx(last.pooled[model]["auc"])
    assert {"sensitivity", "ppv", "brier", "average_precision", "calibration_slope"} <= {
        o.metric for o in finding.pooled
    }


def test_a_regression_has_r2_and_absolute_errors(tmp_path: Path) -> None:
    """And the verdict is by the mean squared error."""
    outcome = bench(regression_rows(SIZES), tmp_path).run(make_job("dkrr"))
    finding = published(outcome)
    assert {s.metric for c in finding.clients for s in c.scores} == {"mse", "mae", "r2"}
    assert [v.metric for v in finding.verdicts] == ["mse"]
    assert any(note.startswith("verdict: mean squared error, mean over 3 clients") for note in outcome.notes)
    assert outcome.notes[-1].startswith("end: ") or outcome.notes[-2].startswith("end: ")


def test_one_that_may_not_answer_changes_nothing_else(tmp_path: Path) -> None:
    """A policy that forbids the answer, or a client of an earlier release, leaves the model as it is."""

    def forbidden(_: Any) -> Any:
        raise PolicyError("no metrics")

    rows = disease_rows(SIZES)
    job = make_job("dkrr", task="binary")
    silent = bench(rows, tmp_path, ("no", "yes"), tamper={("bee", "evaluation.appraise"): forbidden}).run(job)
    assert any("no standard errors at bee" in note for note in silent.notes)
    assert published(silent).behind == "2 of 3 clients, 100 of 150 measured rows"
    whole = bench(rows, tmp_path / "whole", ("no", "yes")).run(job)
    assert (silent.weights == whole.weights).all()


def test_other_scores_than_before_are_not_believed(tmp_path: Path) -> None:
    """A client that tells another AUC than in the last round has no errors of this model."""

    def lie(reply: Any) -> Any:
        assert isinstance(reply, Appraisal)
        moved = {("global", "auc"): -0.01}
        scores = tuple(replace(s, value=s.value + moved.get((s.model, s.metric), 0.0)) for s in reply.scores)
        return replace(reply, scores=scores, differences=())

    rows, job = disease_rows(SIZES), make_job("dkrr", task="binary")
    outcome = bench(rows, tmp_path, ("no", "yes"), tamper={("bee", "evaluation.appraise"): lie}).run(job)
    assert any("the global model's scores have no standard errors at bee: " in note for note in outcome.notes)
    assert published(outcome).num_clients == 2


def test_a_model_that_the_job_calls_by_another_name_is_found_by_its_scores() -> None:
    """Where a method delivers the model that clients measured as another one, its errors go with it."""
    measured = {"ant": {"global": {"log_loss": 0.5}, "weighted": {"log_loss": 0.4}, "lost": {"log_loss": 0.9}}}
    scores = (
        ScoreOf("global", "log_loss", 0.4, 0.1, 0.2, 0.6, 20),
        ScoreOf("plain", "log_loss", 0.5, 0.1, 0.3, 0.7, 20),
    )
    gains = (GainOf("global", "plain", "log_loss", 0.1, 0.02), GainOf("plain", "global", "log_loss", -0.1, 0.02))
    found = as_told(ClientScores("ant", 20, 20, scores=scores, gains=gains), RoundMetrics({}, measured))
    assert {(s.model, s.value) for s in found.scores} == {("global", 0.5), ("weighted", 0.4)}
    assert {(g.model, g.against, g.gain) for g in found.gains} == {
        ("global", "weighted", -0.1),
        ("weighted", "global", 0.1),
    }


def test_without_test_rows_nobody_is_asked(tmp_path: Path) -> None:
    """There are no scores then, and no finding."""
    rows = {name: replace(r, x_test=r.x_test[:0], y_test=r.y_test[:0]) for name, r in regression_rows(SIZES).items()}
    outcome = bench(rows, tmp_path).run(make_job("dkrr"))
    assert not [e for e in outcome.journal.events if e.message == ScoresFinding.name]


@pytest.mark.parametrize("part", ["scores", "differences"])
def test_an_error_of_1e308_leaves_its_client_out_of_the_scores(tmp_path: Path, part: str) -> None:
    """It ended the job with an error of no type, where it was squared."""

    def lie(reply: Appraisal) -> Appraisal:
        told: Any = {part: tuple(replace(found, error=1e308) for found in getattr(reply, part))}
        return replace(reply, **told)

    outcome = bench(regression_rows(SIZES), tmp_path, tamper={("bee", "evaluation.appraise"): lie}).run(
        make_job("dkrr")
    )
    assert [client.client for client in published(outcome).clients] == ["ant", "cat"]
    (failed,) = [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert (failed.client, failed.reason) == ("bee", "INVALID_REPLY")
