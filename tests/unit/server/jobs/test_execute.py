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
from kernfed_testing.in_process import Tamper, bench, make_job, regression_rows, scaled

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
        ("fedavg", "fedavg.local_update", {"rounds": 4}),
        ("fedprox", "fedprox.local_update", {"rounds": 6}),
        ("newton", "newton.gradient", {"rounds": 4, "step": "paper", "ridge": 0.1}),
    ],
)
def test_a_client_that_drives_a_run_away_is_named(
    tmp_path: Path, method: str, step: str, settings: dict[str, Any]
) -> None:
    """The error of a run that leaves the range of sense names whose numbers were 10^5 times the others'."""
    tampered = bench(regression_rows(SIZES), tmp_path, tamper={(FOE, step): scaled(1e5)})
    with pytest.raises(NumericalError, match=f"{FOE} sent numbers") as found:
        tampered.run(make_job(method, cohort="min_clients = 2", **settings))
    assert "lower method.learning_rate" not in str(found.value)


def test_numbers_that_count_though_they_are_far_off_are_noted(tmp_path: Path) -> None:
    """Clients may differ, so 10^5 times the others' numbers count: a note names the client, step and factor."""
    tampered = bench(regression_rows(SIZES), tmp_path, tamper={(FOE, "ridge.local_solve"): scaled(1e5)})
    outcome = tampered.run(make_job("dkrr", cohort="min_clients = 2"))
    (note,) = [note for note in outcome.notes if note.startswith(f"{FOE} sent numbers")]
    assert "LocalModel.weights of ridge.local_solve" in note
    assert not [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED]


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
