"""The end of a job that one client's numbers drive: the client is out and named, or the error names it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import NumericalError
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Reply
from kernfed_testing.in_process import INDEPENDENT, Tamper, bench, make_job, regression_rows, scaled, stating

SIZES = {"ant": 40, "bee": 30, "dog": 35, "zed": 30}
FOE = "zed"


def filled(value: float) -> Tamper:
    """Replies whose arrays hold one number everywhere."""

    def change(reply: Reply) -> Reply:
        arrays = {n: getattr(reply, n) for n in reply.__dataclass_fields__}
        full = {n: np.full_like(a, value) for n, a in arrays.items() if isinstance(a, np.ndarray)}
        return replace(reply, **full)

    return change


@pytest.mark.parametrize(
    ("method", "step", "settings"),
    [
        ("fedavg", "fedavg.local_update", {"rounds": 30}),
        ("fedprox", "fedprox.local_update", {"rounds": 30}),
    ],
)
def test_a_client_that_drives_a_run_away_is_named(
    tmp_path: Path, method: str, step: str, settings: dict[str, Any]
) -> None:
    """The error of a run that leaves the range of sense names whose numbers were far beyond the others'."""
    tampered = bench(regression_rows(SIZES), tmp_path, tamper={(FOE, step): scaled(90.0)})
    with pytest.raises(NumericalError, match=f"{FOE} sent numbers") as found:
        tampered.run(make_job(method, cohort="min_clients = 2", **settings))
    assert "lower method.learning_rate" not in str(found.value)


def test_numbers_that_count_though_they_are_far_off_are_noted(tmp_path: Path) -> None:
    """Clients may differ, so 35 times the others' numbers count: a note names the client, step and factor."""
    tampered = bench(regression_rows(SIZES), tmp_path, tamper={(FOE, "ridge.local_solve"): scaled(35.0)})
    outcome = tampered.run(make_job("dkrr", cohort="min_clients = 2"))
    (note,) = [note for note in outcome.notes if note.startswith(f"{FOE} sent numbers")]
    assert "LocalModel.weights of ridge.local_solve" in note
    assert not [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED]


@pytest.mark.parametrize("sites", [3, 4, 5])
@pytest.mark.parametrize(("foe", "factor"), [("ant", 1e5), ("eel", -2e3)])
def test_a_model_far_beyond_those_of_the_others_is_left_out(
    tmp_path: Path, sites: int, foe: str, factor: float
) -> None:
    """10^5 times, or -2,000 times, the client's own model: the model is that of the others, who are not named."""
    rows = regression_rows(dict.fromkeys(("ant", "bee", "cat", "dog", "eel")[5 - sites :], 60))
    foe = foe if foe in rows else min(rows)
    job = make_job("dkrr", cohort="min_clients = 2", **INDEPENDENT)
    found = bench(rows, tmp_path, tamper={(foe, "ridge.local_solve"): scaled(factor)}).run(job)
    want = bench({c: r for c, r in rows.items() if c != foe}, tmp_path / "others").run(job)
    np.testing.assert_array_equal(found.weights, want.weights)
    failed = [e for e in found.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert {e.client for e in failed} == {foe}
    assert "949 times is the most that may be" in failed[0].message


def test_a_mean_of_targets_is_the_one_that_was_described(tmp_path: Path) -> None:
    """Another one than that of the client's description is refused before round 1."""
    job = make_job("dkrr", cohort='min_clients = 2\npreflight = "quorum"')
    lie = {(FOE, "data.mean_embedding"): stating(target_mean=np.array([5e4]))}
    outcome = bench(regression_rows(SIZES), tmp_path, tamper=lie).run(job)
    assert any(n.startswith(f"{FOE} is left out of this job") and "mean of its targets" in n for n in outcome.notes)


@pytest.mark.parametrize("scales", ["clipped", "moments"])
def test_a_client_whose_targets_stand_apart_does_not_move_their_mean(tmp_path: Path, scales: str) -> None:
    """A lie told twice: with clipped scales the mean is that of the others, and no note says that the lie counted."""
    job = make_job("dkrr", cohort="min_clients = 2", data=f'scales = "{scales}"\nranges = {{y = [-1e9, 1e9]}}')
    far = {"target_mean": 5e4, "target_deviation": 1.0}
    lies = {
        (FOE, "data.describe"): stating(**far),
        (FOE, "data.mean_embedding"): stating(target_mean=np.array([far["target_mean"]])),
    }
    rows = regression_rows(SIZES)
    outcome = bench(rows, tmp_path, tamper=lies).run(job)
    error = outcome.metrics[-1].clients["ant"]["global"]["mse"]
    apart = [n for n in outcome.notes if n.startswith(f"{FOE} has no say in the mean of y")]
    counted = [n for n in outcome.notes if "and they counted" in n]
    if scales == "clipped":
        honest = bench(rows, tmp_path / "honest").run(job).metrics[-1].clients["ant"]["global"]["mse"]
        assert error < 1.2 * honest
        assert (len(apart), counted) == (1, [])
    else:
        assert error > 1e6
        assert (apart, len(counted)) == ([], 1)


def test_a_mean_of_test_targets_whose_square_is_no_number_is_refused(tmp_path: Path) -> None:
    """Its client is named for it, and the others are measured."""

    def lie(reply: Any) -> Any:
        return replace(reply, sums=tuple(replace(s, target_mean=1e308) for s in reply.sums))

    tamper = {(FOE, "evaluation.evaluate"): lie}
    outcome = bench(regression_rows(SIZES), tmp_path, tamper=tamper).run(make_job("dkrr", cohort="min_clients = 2"))
    failed = [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert {e.client for e in failed} == {FOE}
    assert set(outcome.metrics[-1].clients) == set(SIZES) - {FOE}


@pytest.mark.parametrize(
    ("step", "change", "settings"),
    [
        ("newton.step", scaled(-1.0), {}),
        ("newton.step", filled(7.0), {}),
        ("newton.step", scaled(-1.0), {"step": "paper", "ridge": 0.5}),
        ("newton.hessian_product", scaled(-1.0), {}),
        ("head.newton_step", filled(7.0), {"loss": "squared", "solver": "exact", "warm_start": False}),
        ("head.newton_step", scaled(-1.0), {"loss": "squared", "solver": "exact", "warm_start": False}),
    ],
)
def test_an_answer_that_no_hessian_gives_leaves_its_client_out(
    tmp_path: Path, step: str, change: Tamper, settings: dict[str, Any]
) -> None:
    """A solve against its right-hand side, or longer than the ridge lets it be, is no solve: the others go on."""
    rows = regression_rows(SIZES)
    job = make_job("newton", cohort="min_clients = 2", rounds=6, **settings)
    outcome = bench(rows, tmp_path, tamper={(FOE, step): change}).run(job)
    failed = [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert {e.client for e in failed} == {FOE}
    assert re.search("zed states a (solve|Hessian product)", failed[0].message)
    honest = bench({c: r for c, r in rows.items() if c != FOE}, tmp_path / "honest").run(job)
    assert outcome.metrics[-1].pooled["global"]["mse"] < 2 * honest.metrics[-1].pooled["global"]["mse"]


@pytest.mark.parametrize("value", [1e5, 7.0, -3.0])
def test_means_of_features_that_no_row_has_are_refused(tmp_path: Path, value: float) -> None:
    """Random features of a row have norm √2 at most, and so have their means."""
    job = make_job("fedavg", cohort='min_clients = 2\npreflight = "quorum"', rounds=2)
    outcome = bench(regression_rows(SIZES), tmp_path, tamper={(FOE, "data.mean_embedding"): filled(value)}).run(job)
    assert any(note.startswith(f"{FOE} is left out of this job") for note in outcome.notes)
    assert outcome.metrics[-1].pooled["global"]["mse"] < 3
