"""How different clients are, before round 1 of FedNewton: held to the matrices themselves, which no client sends."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.federation.events import EventKind
from kernfed.federation.messages.base import Kind, Reply
from kernfed.jobs.client_file import PolicySection
from kernfed.methods.ridge.finding import DifferencesFinding
from kernfed.methods.ridge.messages import SecondMomentsRequest
from kernfed_client.daemon.policy import Policy
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import Bench, Outcome, bench, make_job, regression_rows

SIZES = {"ant": 300, "bee": 260, "cat": 340, "dog": 280}


def told(outcome: Outcome) -> DifferencesFinding:
    """The finding of a run."""
    found = [e.finding for e in outcome.journal.events if e.kind is EventKind.FINDING and e.message == "differences"]
    assert len(found) == 1
    assert found[0] is not None
    return DifferencesFinding.from_json(found[0])


def _forbidden(_: Reply) -> Reply:
    allowed = tuple(kind for kind in Kind if kind is not Kind.SUFFICIENT_STATISTIC)
    Policy(PolicySection(allow=allowed)).check(SecondMomentsRequest, "bee", "newton", 260)
    raise AssertionError("the policy lets it out")


def other_site(shift: float) -> dict[str, Rows]:
    """Four clients of one law, but for the inputs of the last."""
    rows = regression_rows(SIZES)
    rows["dog"] = replace(rows["dog"], x_train=0.5 * rows["dog"].x_train + shift)
    return rows


def moments(federation: Bench) -> tuple[dict[str, Floats], dict[str, float]]:
    """C_j and p_j of all clients, from their rows."""
    z = {name: job.z_train.numpy() for name, job in federation.jobs.items()}
    total = sum(len(of) for of in z.values())
    return {name: of.T @ of / len(of) for name, of in z.items()}, {name: len(of) / total for name, of in z.items()}


@pytest.mark.parametrize("frequencies", [12, 60])
def test_differences_are_those_of_the_matrices(tmp_path: Path, frequencies: int) -> None:
    """Norms of C - C_j, Υ and the largest eigenvalue of P H agree with numpy's on the pooled rows."""
    ridge = 1e-2
    job = make_job("newton", ridge=ridge, rounds=2, differences=True, frequencies=frequencies)
    federation = bench(other_site(1.0), tmp_path)
    found = told(federation.run(job))
    own, p = moments(federation)
    pooled = np.sum([p[name] * own[name] for name in own], axis=0)
    identity = np.eye(len(pooled))
    upsilon = 0.0
    for of in found.clients:
        exact = float(np.linalg.norm(pooled - own[of.client], 2))
        assert of.difference == pytest.approx(exact, rel=1e-9 if frequencies == 12 else 1e-3)
        assert of.difference <= exact * (1 + 1e-9)
        assert of.share == pytest.approx(p[of.client])
        upsilon += p[of.client] * exact / ridge * (1 + exact / ridge)
    assert found.norm == pytest.approx(np.linalg.norm(pooled, 2), rel=1e-3)
    assert found.upsilon == pytest.approx(upsilon, rel=1e-2)
    mean_inverse = sum(p[name] * np.linalg.inv(own[name] + ridge * identity) for name in own)
    largest = float(np.linalg.eigvals(mean_inverse @ (pooled + ridge * identity)).real.max())
    assert 1 + found.contraction == pytest.approx(largest, rel=0.02)
    assert found.contraction <= (largest - 1) * (1 + 1e-9) <= found.upsilon
    assert found.rows_enough == pytest.approx(29 * 9 * math.log(20) / ridge)


def test_who_is_different_is_named(tmp_path: Path) -> None:
    """A client of other inputs is told, and clients of one law are near what chance makes of them."""
    job = make_job("newton", ridge=1e-2, rounds=2, differences=True)
    alike = bench(regression_rows(SIZES), tmp_path / "alike").run(job)
    for of in told(alike).clients:
        assert 0.3 < of.times < 2.0
    assert not any("by more than chance" in note for note in alike.notes)
    other = bench(other_site(2.0), tmp_path / "other").run(job)
    named = [note for note in other.notes if "by more than chance" in note]
    assert len(named) == 1
    assert "dog (" in named[0]


def test_that_the_papers_step_diverges_is_told_before_it_does(tmp_path: Path) -> None:
    """With fewer rows than features a note says before round 1 what Algorithm 1 ends with."""
    few = {"ant": 25, "bee": 18, "cat": 31, "dog": 22}
    outcome = bench(regression_rows(few), tmp_path).run(make_job("newton", ridge=1e-4, rounds=30, differences=True))
    assert told(outcome).contraction > 1
    assert any("or more at worst, so it diverges" in note for note in outcome.notes)


def test_the_model_is_the_same_and_who_does_not_tell_takes_part(tmp_path: Path) -> None:
    """No bit of the model hangs on the diagnosis, and a client that may not answer is left out of that alone."""
    settings: dict[str, Any] = {"ridge": 1e-2, "rounds": 4}
    plain = bench(regression_rows(SIZES), tmp_path / "plain").run(make_job("newton", **settings))
    silent = {("bee", "newton.second_moments"): _forbidden}
    asked = make_job("newton", differences=True, **settings)
    outcome = bench(regression_rows(SIZES), tmp_path / "told", tamper=silent).run(asked)
    assert outcome.weights.tobytes() == plain.weights.tobytes()
    assert [c.client for c in told(outcome).clients] == ["ant", "cat", "dog"]
    assert any("how different clients are is told without bee" in note for note in outcome.notes)
