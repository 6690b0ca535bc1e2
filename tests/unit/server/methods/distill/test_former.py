"""Jobs that an earlier release began go on under the rules that they began with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.methods.distill.settings import DistillSettings
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.jobs.state import State
from kernfed_server.methods.distill.former import begun_with
from kernfed_simulation.federation import from_rows
from kernfed_testing.in_process import Bench
from kernfed_testing.methods.distill import made_job, made_rows, run

SINCE_MEMORY = {"answered", "remembered", "remembered_of"}
SINCE_TUNING = {*SINCE_MEMORY, "tuned"}
SINCE_BOUNDS = {*SINCE_TUNING, "steps", "opening", "scale", "steadiest", "far_rows"}
RULES: dict[str, tuple[set[str], dict[str, Any]]] = {
    "before tuning": (SINCE_TUNING, {"ridge": 1e-3, "lengthscale": "median", "keep": "better"}),
    "printed": (
        SINCE_BOUNDS,
        {
            "ridge": 1e-3,
            "lengthscale": "median",
            "keep": "distilled",
            "intercept": "penalised",
            "deregularise": "paper",
        },
    ),
}


@pytest.mark.parametrize("name", list(RULES))
def test_a_job_without_keys_goes_on_as_it_began(tmp_path: Path, name: str) -> None:
    """The consensus is that of a run under the old defaults from the first round to the last, and a note says so."""
    lacking, rules = RULES[name]
    rows = made_rows(3, 20)
    defaults: dict[str, Any] = {"rounds": 6, "kernel": "gaussian"}
    silent: dict[str, Any] = dict.fromkeys(("ridge", "lengthscale", "intercept"))
    job, _, files = made_job(tmp_path, **defaults, **silent)
    assert not {"ridge", "lengthscale", "keep", "intercept", "deregularise"} & job.method.model_fields_set
    old, _, _ = made_job(tmp_path, **defaults, **{**silent, **rules})
    peaceful = run(old, files, Bench(from_rows(rows, (), tmp_path)))
    stopped = run(old, files, Bench(from_rows(rows, (), tmp_path)), stop_before=4)
    assert stopped.journal.last is not None
    state = {key: array for key, array in stopped.journal.last.state.items() if key not in lacking}
    again = run(
        job, files, Bench(from_rows(rows, (), tmp_path)), resumed=Checkpoint(stopped.journal.last.round_num, state)
    )
    np.testing.assert_array_equal(again.values, peaceful.values)
    assert any(note.startswith("begun by an earlier release, whose rules it keeps: ") for note in again.notes)
    kept = [note for note in again.notes if note.startswith("ridge")]
    assert kept == []


def settings(**stated: Any) -> DistillSettings:
    return DistillSettings.model_validate({"name": "distill", "public": "p.csv", **stated})


def test_what_the_job_file_says_stays() -> None:
    """But for the two keys whose `true` meant the printed rules."""
    state = State({"consensus": np.zeros((1, 1))})
    found, told = begun_with(settings(ridge=0.1, keep="better", intercept=True, deregularise=True), state)
    assert (found.ridge, found.keep, found.lengthscale) == (0.1, "better", "median")
    assert (found.intercept, found.deregularise) == ("penalised", "paper")
    assert "deregularise = paper" in told
    found, _ = begun_with(settings(intercept=False, deregularise=False), state)
    assert (found.intercept, found.deregularise) == (False, False)


def test_a_job_that_begins_takes_the_defaults_of_now() -> None:
    """And so does one that this release began."""
    for state in (None, State({"tuned": np.array([1e-3, 1.0, 0.0]), "answered": np.zeros(1)})):
        found, told = begun_with(settings(), state)
        assert (found, told) == (settings(), "")


def test_a_job_that_kept_no_predictions_keeps_none() -> None:
    """A round of it goes on as the mean of those who answer, unless drawn clients have the consensus' own memory."""
    state = State({"tuned": np.array([1e-3, 1.0, 0.0]), "steps": np.zeros(1)})
    found, told = begun_with(settings(), state)
    assert (found.remember, found.keep, told.endswith(": remember = consensus")) == ("consensus", "blend", True)
    drawn = settings(client_fraction=0.5)
    assert begun_with(drawn, state) == (drawn, "")
