"""Clients that send finite numbers which no rows give: left out, named, and nobody else is harmed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import JobError
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Reply
from kernfed_testing.in_process import bench
from kernfed_testing.methods.personalise import (
    NAMES,
    opposite_rows,
    personal_job,
)

pytestmark = pytest.mark.slow


def changed(**fields: Callable[[Any], Any]) -> Callable[[Reply], Reply]:
    """Replies with other values of some fields."""

    def change(reply: Reply) -> Reply:
        new: Any = {name: make(getattr(reply, name)) for name, make in fields.items()}
        return replace(reply, **new)

    return change


QUICK = personal_job(num_columns=5, grid="lite", ridge=1e-3)

HOSTILE = {
    "weights": ("personalise.tell_weights", changed(weights=lambda w: 2 * w), "not on the simplex"),
    "products": ("personalise.statistics", changed(moment=lambda m: 1e3 * m), "products of inputs and targets"),
    "squares": ("personalise.statistics", changed(gram=lambda g: -g), "mean square of an input is negative"),
    "counts": ("personalise.statistics", changed(num_rows=lambda n: 1000 * n), "stated 17 training rows before"),
    "scores": ("personalise.crossfit", changed(losses=lambda v: 1e9 * v), "1e+06 times is the most"),
    "signs": ("personalise.crossfit", changed(variances=lambda v: -1 - v), "variances holds a negative sum"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_client_that_sends_what_no_rows_give_is_left_out_and_named(tmp_path: Path, name: str) -> None:
    """Absurd but finite numbers: the job says whose they are and why, and the others have sound models."""
    step, tamper, why = HOSTILE[name]
    outcome = bench(opposite_rows(17), tmp_path, tamper={("dog", step): tamper}).run(QUICK)
    failed = [e for e in outcome.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert {e.client for e in failed} <= {"dog"}
    assert any("dog" in text and why in text for text in [*outcome.notes, *(f"dog: {e.message}" for e in failed)])
    scores = outcome.metrics[-1].clients
    assert all(scores[other]["personal"]["mse"] < 0.6 for other in NAMES if other != "dog")


@pytest.mark.parametrize(
    ("tamper", "why"),
    [
        (changed(mean=lambda m: 50 * m), "a mean embedding of norm"),
        (changed(trace=lambda t: 1e4 * t), "an embedding of rows that vary by"),
        (changed(num_different=lambda n: n + 1), "more rows are different than there are"),
    ],
)
def test_an_embedding_that_no_rows_have_leaves_its_client_out(tmp_path: Path, tamper: Any, why: str) -> None:
    """With the quorum it is left out and named; where all clients must pass, the job is refused and names it."""
    federation = bench(opposite_rows(17), tmp_path, tamper={("dog", "personalise.embed"): tamper})
    outcome = federation.run(personal_job(num_columns=5, grid="lite", cohort='preflight = "quorum"'))
    assert any("dog is left out of this job" in note and why in note for note in outcome.notes)
    scores = outcome.metrics[-1].clients
    assert all(scores[other]["personal"]["mse"] < 0.6 for other in NAMES if other != "dog")
    with pytest.raises(JobError, match=f"dog: .*{why}"):
        federation.run(QUICK)
