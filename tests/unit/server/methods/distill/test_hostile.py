"""A client of distillation that sends absurd but finite numbers, or counts that cannot be: left out, and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Reply
from kernfed.methods.distill.messages import LeftOutErrors, TargetMoments
from kernfed_server.methods.distill.tuning import PENALTIES
from kernfed_simulation.federation import Rows, from_rows
from kernfed_testing.in_process import Bench, Tamper, regression_rows, scaled, stating, with_nan
from kernfed_testing.methods.distill import Ran, made_job, made_rows, run, units

FOE = "site-3"
OPEN: dict[str, Any] = {"kernel": "gaussian", "lengthscale": None, "ridge": None, "intercept": None, "rounds": 5}
QUORUM = 'min_clients = 2\npreflight = "quorum"'


def ran(folder: Path, rows: dict[str, Rows], tamper: dict[tuple[str, str], Tamper], from_round: int = 0) -> Ran:
    """The job under its defaults."""
    folder.mkdir()
    job, _, files = made_job(folder, cohort=QUORUM, **OPEN)
    return run(job, files, Bench(from_rows(rows, (), folder / "s"), tamper=tamper, from_round=from_round))


def negative(reply: Reply) -> Reply:
    """Moments with a deviation below 0."""
    assert isinstance(reply, TargetMoments)
    return stating(deviation=-reply.deviation)(reply)


@pytest.mark.parametrize(
    ("step", "change"),
    [
        ("distill.distil", scaled(1e5)),
        ("distill.distil", scaled(1e20)),
        ("distill.distil", scaled(1e290)),
        ("distill.distil", stating(num_rows=10**9)),
        ("distill.describe_targets", scaled(1e20)),
        ("distill.describe_targets", negative),
        ("distill.describe_targets", with_nan),
        ("distill.describe_targets", stating(num_rows=10**9)),
        ("distill.start", stating(num_rows=10**9)),
        ("distill.leave_out", stating(num_used=999)),
        ("distill.leave_out", scaled(-1.0)),
        ("distill.measure", stating(num_test_rows=10**9)),
        ("distill.keep_model", stating(num_rows=10**9)),
    ],
)
def test_a_client_of_absurd_answers_is_out_and_named(tmp_path: Path, step: str, change: Tamper) -> None:
    """The others go on without it, to the consensus and the models that they reach alone, or nearly so."""
    rows = made_rows(4, 20)
    honest = ran(tmp_path / "honest", rows, {})
    done = ran(tmp_path / "hostile", rows, {(FOE, step): change})
    failed = {e.client for e in done.journal.events if e.kind is EventKind.CLIENT_FAILED}
    named = [note for note in done.notes if FOE in note]
    assert failed == {FOE} or (not failed and named), "nothing was found"
    assert np.abs(done.values).max() < 2 * np.abs(honest.values).max()
    assert done.metrics().pooled["personal"]["mse"] < 2 * honest.metrics().pooled["personal"]["mse"]


def test_a_client_that_turns_hostile_later_is_out_from_the_beginning(tmp_path: Path) -> None:
    """What it told before counts no more: three rounds later the consensus is that of three rounds without it."""
    rows = made_rows(4, 20)
    lie: dict[tuple[str, str], Tamper] = {(FOE, "distill.distil"): scaled(1e5)}
    done = ran(tmp_path / "a", rows, lie, from_round=3)
    (note,) = [note for note in done.notes if note.startswith(f"{FOE} predicts values more than")]
    assert "its predictions do not count, and the consensus begins again with the first ones of the others" in note
    job, _, files = made_job(tmp_path, cohort=QUORUM, **{**OPEN, "rounds": 3})
    soon = run(job, files, Bench(from_rows(rows, (), tmp_path / "s"), tamper=lie))
    np.testing.assert_array_equal(done.values, soon.values)


@pytest.mark.parametrize("factor", [4.0, 3e2, 3e5])
@pytest.mark.parametrize("from_round", [0, 2])
def test_an_absurd_answer_is_in_no_consensus_of_the_printed_rule(
    tmp_path: Path, factor: float, from_round: int
) -> None:
    """Nobody has rows near half of the points, where it would stay: the others' rule shrinks nothing there."""
    rows = made_rows(4, 20)
    points = np.random.default_rng(9).random((30, 3)) + np.repeat([0.0, 3.0], 15)[:, None]
    settings = {**OPEN, "rounds": 8, "deregularise": "paper", "points": points}
    found = []
    lies: tuple[dict[tuple[str, str], Tamper], ...] = ({}, {(FOE, "distill.distil"): scaled(factor)})
    for i, tamper in enumerate(lies):
        folder = tmp_path / str(i)
        folder.mkdir()
        job, _, files = made_job(folder, cohort=QUORUM, **settings)
        found.append(run(job, files, Bench(from_rows(rows, (), folder / "s"), tamper=tamper, from_round=from_round)))
    honest, hostile = found
    assert not [note for note in honest.notes if "predicts values" in note]
    (note,) = [note for note in hostile.notes if "predicts values" in note]
    assert note.startswith(FOE)
    assert not [note for note in hostile.notes if "they counted" in note]
    assert np.abs(hostile.values - honest.values).max() < 0.1


def test_a_run_that_goes_on_remembers_who_is_out(tmp_path: Path) -> None:
    """The client is honest in the second life of the run, and counts no more; the consensus has the same bits."""
    rows = made_rows(4, 20)
    lie: dict[tuple[str, str], Tamper] = {(FOE, "distill.distil"): scaled(1e5)}
    job, _, files = made_job(tmp_path, cohort=QUORUM, **OPEN)
    whole = run(job, files, Bench(from_rows(rows, (), tmp_path / "a"), tamper=lie, from_round=2))
    second = Bench(from_rows(rows, (), tmp_path / "b"), tamper=lie, from_round=2)
    stopped = run(job, files, second, stop_before=4)
    again = run(job, files, Bench(second.jobs), resumed=stopped.journal.last)
    np.testing.assert_array_equal(again.values, whole.values)


def test_absurd_errors_of_left_out_rows_choose_nothing(tmp_path: Path) -> None:
    """Errors of 1e90 but for one choice do not make it the job's, where the others' rows say another."""
    rows = regression_rows({f"site-{i}": 25 for i in range(4)})

    def only_one(reply: Reply) -> Reply:
        assert isinstance(reply, LeftOutErrors)
        errors = np.full_like(reply.squared_errors, 1e90)
        errors[0, 0] = 0.0
        return stating(squared_errors=errors)(reply)

    def ridge_of(found: Ran) -> float:
        (finding,) = [e.finding for e in found.journal.events if e.finding is not None and "ridge" in e.finding]
        return float(finding["ridge"])

    honest = ran(tmp_path / "a", rows, {})
    foe = ran(tmp_path / "b", rows, {(FOE, "distill.leave_out"): only_one})
    assert ridge_of(honest) < 0.5
    assert ridge_of(foe) < 0.5
    assert PENALTIES[0] == 100.0  # with 100 rows a ridge of 1, which gives the mean
    assert foe.metrics().pooled["personal"]["mse"] < 2 * honest.metrics().pooled["personal"]["mse"]


@pytest.mark.parametrize("factor", [1e3, 1e5])
@pytest.mark.parametrize("num_clients", [3, 4])
def test_a_liar_about_its_targets_does_not_make_the_others_look_far_off(
    tmp_path: Path, num_clients: int, factor: float
) -> None:
    """Of three clients one states a mean of its targets that cannot be: it alone is left out, and the job goes on."""

    def lying(reply: Reply) -> Reply:
        assert isinstance(reply, TargetMoments)
        return stating(mean=reply.mean * factor)(reply)

    foe = f"site-{num_clients - 1}"
    done = ran(tmp_path / "a", units(made_rows(num_clients, 20), shift=3.0), {(foe, "distill.describe_targets"): lying})
    (note,) = [note for note in done.notes if "left out of this job" in note]
    assert note.startswith(f"{foe} is left out of this job: INVALID_DATA: its targets lie")
    assert np.abs(done.values).max() < 5.0


def test_a_client_that_gains_much_more_than_all_others_is_not_left_out(tmp_path: Path) -> None:
    """Gains of the others may be next to nothing: they are told, and nothing is made of them."""
    tamper: dict[tuple[str, str], Tamper] = {
        (name, "distill.keep_model"): stating(gain=1e-9, gain_error=1e-9) for name in ("site-0", "site-1", "site-2")
    }
    tamper[FOE, "distill.keep_model"] = stating(gain=0.4, gain_error=0.1)
    job, _, files = made_job(tmp_path, rounds=2)
    done = run(job, files, Bench(from_rows(made_rows(), (), tmp_path / "s"), tamper=tamper))
    assert not [e for e in done.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert any(f"{FOE} (40% ± 10%)" in note for note in done.notes)
