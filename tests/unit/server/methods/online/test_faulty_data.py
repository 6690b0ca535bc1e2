"""Clients whose data are faulty, while nobody else has rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kernfed.errors import QuorumNotMetError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind
from kernfed.federation.exchange import Fault
from kernfed.federation.in_process import InProcessExchange
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.run import Run
from kernfed_server.methods.online import faulty_data
from kernfed_server.methods.online.faulty_data import FaultyData
from kernfed_testing.methods.online_clients import SMALL_POOLED, StreamClients, clients, stream_job


class Round:
    """A cohort's faults in a round."""

    def __init__(self) -> None:
        self.faults = {"a": Fault("INVALID_DATA", "no such column"), "b": Fault("STEP_FAILED", "unexpected")}

    def forgive(self, client: str) -> None:
        del self.faults[client]


@pytest.mark.parametrize(("pause_s", "left"), [(0.0, {"b"}), (3600.0, {"a", "b"})])
def test_only_faulty_data_are_looked_at_again(monkeypatch: pytest.MonkeyPatch, pause_s: float, left: set[str]) -> None:
    """A client whose file may have been corrected is asked again in the same round, after a pause; others are not."""
    monkeypatch.setattr(faulty_data, "_FIRST_PAUSE_S", pause_s)
    cohort = Round()
    faulty = FaultyData(cast("Cohort", cohort), cast("Run", None))
    faulty.look()
    assert cohort.faults.keys() == left


class FaultyFile(InProcessExchange):
    """One client's data cannot be read at some of the questions, counted from 1."""

    def __init__(self, made: StreamClients, client: str, faulty: range) -> None:
        super().__init__(STEPS, made.jobs)
        self.client, self.faulty = client, faulty
        self.asked = 0

    async def ask(self, call: Any) -> Any:
        if not call.request.step.endswith("_step") or self.client not in call.clients:
            return await super().ask(call)
        self.asked += 1
        if self.asked not in self.faulty:
            return await super().ask(call)
        found = dict(await super().ask(replace(call, clients=tuple(c for c in call.clients if c != self.client))))
        return found | {self.client: Fault("INVALID_DATA", "no such column")}


@pytest.fixture
def ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with faulty data are asked again without a pause."""
    monkeypatch.setattr("kernfed_server.methods.online.faulty_data._FIRST_PAUSE_S", 0.0)


@pytest.mark.usefixtures("ask_at_once")
def test_a_client_with_a_faulty_file_is_waited_for(tmp_path: Path) -> None:
    """Where it lacks for the quorum the job waits and says so, and learns what it would have learned without it."""
    made = clients(tmp_path / "faulty")
    job = stream_job(**SMALL_POOLED, cohort="min_fraction = 1.0")
    model, journal = made.run(job, exchange=FaultyFile(made, "c1", range(5, 9)))
    undisturbed, _ = clients(tmp_path / "twin").run(job)
    assert model.theta.tobytes() == undisturbed.theta.tobytes()
    notes = [e.message for e in journal.events if e.kind is EventKind.NOTE and "read" in e.message]
    assert notes[0].startswith("the stream of c1 cannot be read; the job waits up to 86400 s (cohort.wait_s)")
    assert notes[1:] == ["the data can be read again; the job goes on"]
    waits = [e.message for e in journal.events if e.kind is EventKind.WAITING]
    assert waits == ["waiting: for data of c1 that can be read"] * 4 + [""]


@pytest.mark.usefixtures("ask_at_once")
def test_a_faulty_file_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """After `cohort.wait_s` the job ends, with the client's own reason."""
    made = clients(tmp_path)
    job = stream_job(**SMALL_POOLED, cohort="min_fraction = 1.0\nwait_s = 1e-6")
    with pytest.raises(QuorumNotMetError, match="c1: INVALID_DATA: no such column"):
        made.run(job, exchange=FaultyFile(made, "c1", range(5, 10**6)))
