"""Tests of `kernfed_server.jobs.sound`: whatever its method, a run that diverges leaves the best round it measured."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DivergedError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, RoundMetrics
from kernfed.federation.exchange import Call, Exchange, Fault
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import R
from kernfed.federation.quorum import Quorum
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.sound import Sound
from kernfed_server.jobs.state import State
from kernfed_simulation.run import simulate
from kernfed_testing.in_process import RecordingJournal, bench, make_job, regression_rows
from kernfed_testing.methods.variants import METHODS, SITES, job_of, sites

LEAVES = {
    "newton": True,
    "head": True,
    "fedavg": True,
    "fednew": True,
    "distill": True,
    "personalise fedavg": False,
    "reweight own": True,
    "ofskl": True,
    "perfedavg": False,
}
"""Methods of several rounds, and whether the coordinator has a model; else each client has its own, or nobody."""
STOPPED = ("head", "fedavg")
ROUND = 5


@dataclass
class Diverging(Exchange):
    """Clients in one process; the first question of a round finds that the iteration has run away."""

    inner: Exchange
    round_num: int
    done: bool = False

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """See `kernfed.federation.exchange.Exchange.ask`."""
        if call.round_num == self.round_num and not self.done:
            self.done = True
            raise DivergedError("out of the range of numbers")
        return await self.inner.ask(call)


def diverge(folder: Path, variant: str, resumed: Checkpoint | None = None) -> tuple[DivergedError, RecordingJournal]:
    """A job that diverges in round 5, and what it told."""
    folder.mkdir()
    job, files = job_of({**METHODS[variant], "rounds": 6}, folder)
    clients = sites(folder / "clients", refusing=False)
    journal = RecordingJournal()
    exchange = Diverging(InProcessExchange(STEPS, clients), ROUND)
    cohort = Cohort(exchange, clients, job_id="job", quorum=Quorum(1, 0.0), observe=journal.event)
    run = Run(cohort, journal, resumed, job.evaluate_every)
    with pytest.raises(DivergedError) as caught:
        asyncio.run(execute(job, cohort, run, read_file=files.__getitem__ if files else None))
    return caught.value, journal


def arrays(model: Any) -> dict[str, Any]:
    """Those of a model of any kind."""
    return {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("variant", [name for name in LEAVES if name in METHODS])
def test_every_method_leaves_its_best_round(variant: str, tmp_path: Path) -> None:
    """However a run diverges, it leaves what its best round came to; one that was stopped before leaves the same."""
    error, journal = diverge(tmp_path / "whole", variant)
    notes = [e.message for e in journal.events if e.kind is EventKind.NOTE]
    if variant == "perfedavg":  # whose network is of use to nobody without the last row
        assert not isinstance(error, DivergedRunError)
        return
    assert isinstance(error, DivergedRunError)
    assert any(note.startswith("the job leaves what round ") for note in notes)
    assert (error.model is not None) is LEAVES[variant]
    if not LEAVES[variant]:
        assert all((tmp_path / "whole" / "clients" / name / "model").exists() for name in SITES)
    elif variant in STOPPED:
        again, _ = diverge(tmp_path / "again", variant, journal.checkpoints[-1])
        assert isinstance(again, DivergedRunError)
        for name, array in arrays(error.model).items():
            assert np.array_equal(array, arrays(again.model)[name]), name


def test_a_step_that_is_too_long_leaves_the_round_before(tmp_path: Path) -> None:
    """The round that is left is the one with the least error, and not one of those on the way out of range."""
    rows = regression_rows({"ant": 60, "bee": 60})
    job = make_job("fedavg", frequencies=20, rounds=60, learning_rate=20.0, local_steps=1)
    done = simulate(job, bench(rows, tmp_path).jobs)
    closed = [e.event.metrics for e in done.events if e.event.kind is EventKind.ROUND_CLOSED]
    errors = [m.pooled["global"]["mse"] for m in closed if m is not None]
    assert done.error is not None
    assert done.error.reason == "DIVERGED"
    assert done.final.pooled["global"]["mse"] == min(errors) < errors[5] / 10
    assert done.model is not None


def test_what_is_far_off_or_was_not_measured_is_not_left() -> None:
    """A run that is far off from its first round on has nothing to leave, nor one whose rounds nobody measured."""
    sound: Sound[None] = Sound()

    async def leave(_: State) -> None:
        pass

    async def measure(_: State) -> RoundMetrics:
        return RoundMetrics()

    sound.leave_by(leave, measure)
    for pooled in ({}, {"local": {"mse": 1.0}}, {"global": {"mse": 1e9, "r2": -1e9}}):
        sound.tell(1, {"weights": np.ones(2)}, RoundMetrics(pooled=pooled))
        assert sound.round_num is None
    for round_num, mse in ((2, 4.0), (3, 1.0), (4, 1.0), (5, 2.0)):
        sound.tell(round_num, {"weights": np.full(2, mse)}, RoundMetrics(pooled={"global": {"mse": mse}}))
    assert sound.round_num == 3
