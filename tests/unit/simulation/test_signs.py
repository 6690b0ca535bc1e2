"""Clients that turn a sign, or send numbers that are of no rows but of ordinary size: left out, or named at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import NumericalError
from kernfed.federation.events import EventKind
from kernfed_simulation.federation import from_rows
from kernfed_testing.in_process import FOUR, Bench, make_job, regression_rows
from kernfed_testing.methods.variants import PERSONAL

SIZES = {client: size // 5 for client, size in FOUR.items()}
NEWTON = {**{key: value for key, value in PERSONAL.items() if key != "name"}, "trainer": "newton", "rounds": 3}


def outcome_of(
    folder: Path,
    method: str,
    settings: dict[str, Any],
    step: str,
    field: str,
    kind: str,
    sizes: Mapping[str, int] = SIZES,
) -> Any:
    """Run a job in which bee lies in one field of a step."""

    def lie(reply: Any) -> Any:
        array = getattr(reply, field)
        told = {"sign": -array, "ones": np.full_like(array, -1.0), "long": 20.0 * array, "thousand": 1000.0 * array}
        return replace(reply, **{field: told[kind]})

    job = make_job(method, cohort=f"min_clients = {min(3, len(sizes))}", frequencies=10, **settings)
    jobs = from_rows(regression_rows(sizes), (), folder)
    return Bench(jobs, tamper={("bee", step): lie} if kind != "none" else {}).run(job)


def named(outcome: Any, client: str) -> list[str]:
    """Notes on a client's numbers."""
    notes = [event.message for event in outcome.journal.events if event.kind is EventKind.NOTE]
    return [note for note in notes if f"{client} sent numbers that" in note]


@pytest.mark.parametrize(
    ("method", "settings", "step", "field", "kind"),
    [
        ("newton", {"rounds": 3}, "newton.start", "weights", "ones"),
        ("newton", {"rounds": 3}, "newton.start", "moment", "sign"),
        ("newton", {"rounds": 3}, "newton.gradient", "gradient", "sign"),
        ("newton", {"rounds": 3}, "newton.gradient", "gradient", "ones"),
        ("newton", {"rounds": 3, "step": "paper", "ridge": 1.0}, "newton.gradient", "gradient", "ones"),
        ("personalise", NEWTON, "personalise.newton_start", "moment", "sign"),
        ("personalise", NEWTON, "personalise.newton_start", "moment", "ones"),
    ],
)
def test_what_no_rows_give_leaves_its_client_out(
    tmp_path: Path, method: str, settings: dict[str, Any], step: str, field: str, kind: str
) -> None:
    """A moment, a solution and a gradient of one client have to be of one quadratic problem."""
    outcome = outcome_of(tmp_path, method, settings, step, field, kind)
    failed = [event for event in outcome.journal.events if event.kind is EventKind.CLIENT_FAILED]
    assert {event.client for event in failed} == {"bee"}
    assert "states a" in failed[0].message
    assert outcome.metrics[-1].pooled["global"]["mse"] < 1.5


@pytest.mark.parametrize("kind", ["none", "sign", "long"])
@pytest.mark.parametrize(
    ("method", "settings", "step", "field"),
    [
        ("fedavg", {"rounds": 2}, "fedavg.local_update", "weights"),
        ("fedprox", {"rounds": 2}, "fedprox.local_update", "weights"),
        ("fednew", {"rounds": 2, "loss": "squared"}, "head.direction", "direction"),
    ],
)
def test_who_points_against_all_others_is_named(
    tmp_path: Path, method: str, settings: dict[str, Any], step: str, field: str, kind: str
) -> None:
    """Its numbers may be honest and count; a note says whose they are. Of honest clients nobody is named."""
    outcome = outcome_of(tmp_path, method, settings, step, field, kind)
    assert bool(named(outcome, "bee")) == (kind != "none")
    assert not any(named(outcome, client) for client in SIZES if client != "bee")


AVERAGED = [
    ("fedavg", {"rounds": 2}, "fedavg.local_update", "weights"),
    ("fedprox", {"rounds": 2}, "fedprox.local_update", "weights"),
    ("fedavg", {"rounds": 2, "loss": "squared"}, "head.descent", "weights"),
    ("fedsophia", {"rounds": 2, "loss": "squared"}, "head.sophia", "weights"),
    ("fednew", {"rounds": 2, "loss": "squared"}, "head.direction", "direction"),
]


@pytest.mark.parametrize(("method", "settings", "step", "field"), AVERAGED)
def test_a_thousand_times_leaves_its_client_out(
    tmp_path: Path, method: str, settings: dict[str, Any], step: str, field: str
) -> None:
    """The others' model is as without the liar; of honest clients, few rows or many, nobody is left out."""
    outcome = outcome_of(tmp_path / "lie", method, settings, step, field, "thousand")
    failed = [event for event in outcome.journal.events if event.kind is EventKind.CLIENT_FAILED]
    assert {event.client for event in failed} == {"bee"}
    assert "times is the most that may be" in failed[0].message
    assert outcome.metrics[-1].pooled["global"]["mse"] < 1.5
    sizes = {"ant": 600, "bee": 14, "cat": 12, "dog": 90}
    outcome = outcome_of(tmp_path / "honest", method, settings, step, field, "none", sizes)
    assert not [event for event in outcome.journal.events if event.kind is EventKind.CLIENT_FAILED]


def test_two_clients_and_a_model_that_is_of_no_use(tmp_path: Path) -> None:
    """Nobody can tell which of two is wrong: the job ends with both names, and not with a model of no use."""
    sizes = {"ant": 60, "bee": 52}
    with pytest.raises(NumericalError, match=r"far worse than the mean.*bee sent numbers .* times as large as ant"):
        outcome_of(tmp_path, "fedavg", {"rounds": 2}, "fedavg.local_update", "weights", "thousand", sizes)


@pytest.mark.parametrize("kind", ["none", "sign"])
@pytest.mark.parametrize(("method", "settings", "step", "field"), AVERAGED)
def test_of_two_clients_that_point_against_each_other_both_are_named(
    tmp_path: Path, method: str, settings: dict[str, Any], step: str, field: str, kind: str
) -> None:
    """Their mean goes nowhere, and the model tells nothing, without anybody's number being large."""
    outcome = outcome_of(tmp_path, method, settings, step, field, kind, {"ant": 60, "bee": 52})
    notes = [event.message for event in outcome.journal.events if event.kind is EventKind.NOTE]
    assert any("ant and bee sent numbers that point against each other" in note for note in notes) == (kind == "sign")
