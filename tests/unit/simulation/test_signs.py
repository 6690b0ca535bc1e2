"""Clients that turn a sign, or send numbers that are of no rows but of ordinary size: left out, or named at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.events import EventKind
from kernfed_simulation.federation import from_rows
from kernfed_testing.in_process import FOUR, Bench, make_job, regression_rows
from kernfed_testing.variants import PERSONAL

SIZES = {client: size // 5 for client, size in FOUR.items()}
NEWTON = {**{key: value for key, value in PERSONAL.items() if key != "name"}, "trainer": "newton", "rounds": 3}


def outcome_of(folder: Path, method: str, settings: dict[str, Any], step: str, field: str, kind: str) -> Any:
    """Run a job in which bee lies in one field of a step."""

    def lie(reply: Any) -> Any:
        array = getattr(reply, field)
        told = {"sign": -array, "ones": np.full_like(array, -1.0), "long": 20.0 * array}
        return replace(reply, **{field: told[kind]})

    job = make_job(method, cohort="min_clients = 3", frequencies=10, **settings)
    jobs = from_rows(regression_rows(SIZES), (), folder)
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
