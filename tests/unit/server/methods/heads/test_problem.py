"""Tests of heads against a client that sends absurd but finite numbers, or counts of rows that it has not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import JobFile
from kernfed_testing.in_process import Tamper, bench, label_skewed_rows, scaled, stating
from kernfed_testing.methods.head_jobs import CLASSES, clients, head_job

FOE = "site-3"


def job_of(method: str) -> JobFile:
    """The foe's numbers come within its rounds."""
    return head_job(method, rounds=12 if method == "newton" else 4, cohort="min_clients = 2")


@pytest.fixture(scope="module")
def honest_size(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], float]:
    """The norm of a method's model of honest clients, which is made once."""

    @functools.cache
    def size(method: str) -> float:
        return float(np.linalg.norm(clients(tmp_path_factory.mktemp("honest")).run(job_of(method)).weights))

    return size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "step", "change"),
    [
        ("fedavg", "head.descent", scaled(1e20)),
        ("fedprox", "head.descent", scaled(1e290)),
        ("fedsophia", "head.sophia", scaled(1e20)),
        ("fednew", "head.direction", scaled(1e20)),
        ("newton", "head.warm_up", scaled(1e20)),
        ("newton", "head.warm_up", stating(loss=1e30)),
        ("newton", "head.gradient", scaled(1e290)),
        ("newton", "head.gradient", stating(loss=1e30)),
        ("newton", "head.gradient", stating(validation_loss=1e30)),
        ("newton", "head.gradient", stating(mean_curvature=1e30)),
        ("newton", "head.newton_step", scaled(1e20)),
        ("newton-paper", "head.gradient", scaled(1e20)),
        ("newton-paper", "head.newton_step", scaled(1e290)),
        ("newton-paper-lbfgs", "head.losses", scaled(1e20)),
        ("fedavg", "head.descent", stating(num_rows=10**9)),
        ("newton", "head.gradient", stating(num_rows=10**9)),
        ("newton", "head.newton_step", stating(num_rows=10**9)),
    ],
)
def test_a_client_of_absurd_numbers_is_out_and_named(
    tmp_path: Path, honest_size: Callable[[str], float], method: str, step: str, change: Tamper
) -> None:
    """The others go on without it, to a model of the size that they give it."""
    done = clients(tmp_path, tamper={(FOE, step): change}).run(job_of(method))
    failed = [e for e in done.journal.events if e.kind is EventKind.CLIENT_FAILED]
    assert failed, "nothing was found"
    assert {e.client for e in failed} == {FOE}
    assert np.linalg.norm(done.weights) < 10 * honest_size(method) + 1
    assert done.metrics[-1].pooled["global"]["accuracy"] > 0.5


@pytest.mark.parametrize(
    "change", [stating(num_rows=10**9), stating(num_validation_rows=10**6), stating(num_fit_rows=1)]
)
def test_counts_that_contradict_what_was_stated_leave_their_client_out(change: Tamper, tmp_path: Path) -> None:
    """At the opening, before round 1, with the client's name."""
    rows = label_skewed_rows()
    job = head_job("newton", rounds=3, cohort='min_clients = 2\npreflight = "quorum"')
    done = bench(rows, tmp_path, CLASSES, tamper={(FOE, "head.open"): change}).run(job)
    assert any(note.startswith(f"{FOE} is left out of this job: INVALID_REPLY") for note in done.notes)
    assert FOE not in done.metrics[-1].clients
