"""A client that loses all it keeps of a job, or starts again, at any moment: the job leaves what its twin left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind
from kernfed.federation.exchange import Call, Exchange, Fault
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import R, Request
from kernfed.federation.messages.catalogue import Requests
from kernfed.federation.quorum import Quorum
from kernfed.v1 import task_pb2
from kernfed.wire.codec import decode, encode
from kernfed.wire.outgoing import payload_to_proto
from kernfed_client.daemon.tasks import TaskRunner
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.run import Run
from kernfed_testing.in_process import RecordingJournal
from kernfed_testing.methods.variants import METHODS, job_of, sites

LOSES = "bee"
MOMENTS = {
    "newton": (0.7,),
    "head": (0.6,),
    "fednew": (0.8,),
    "distill": (0.5, 0.9),
    "personalise": (0.6,),
    "personalise newton": (0.8,),
    "reweight own": (0.4, 0.6, 0.8, 0.95),
    "reweight": (0.2, 0.25, 0.5, 0.8, 0.95),
}
"""Share of a job's questions that the client answers before."""
RESTARTS = {
    "head": (0.6,),
    "distill": (0.5,),
    "personalise": (0.6,),
    "reweight own": (0.6,),
    "reweight": (0.25, 0.28, 0.74),  # before rows that are weighed already are centred by other means
}
"""As `MOMENTS`, where it keeps its folder."""


@dataclass
class Forgetful(Exchange):
    """An exchange in one process; a client begins anew before a question."""

    jobs: dict[str, LocalJob]
    folder: Path
    before: int | None
    """Number of the question; None: it forgets nothing."""
    asked: int = 0

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """See `kernfed.federation.exchange.Exchange.ask`."""
        if LOSES in call.clients:
            if self.asked == self.before:
                self.begin_anew()
            self.asked += 1
        return await InProcessExchange(self.steps, self.jobs).ask(call)

    @property
    def steps(self) -> Mapping[type[Request[Any]], Any]:
        """The clients' halves of steps."""
        return STEPS

    def begin_anew(self) -> None:
        """The client has another folder, an empty one."""
        self.jobs[LOSES] = sites(self.folder, refusing=False)[LOSES]


@dataclass
class Restarted(Forgetful):
    """The client answers by the daemon's task runner, and another one takes over its folder before a question."""

    def __post_init__(self) -> None:
        """Begin with the first."""
        self.begin_anew()

    @property
    def steps(self) -> Mapping[type[Request[Any]], Any]:
        """Those of the other clients are called as they are."""
        return {request: partial(self._answer, step) for request, step in STEPS.items()}

    def begin_anew(self) -> None:
        """A new life of the daemon."""

        def nothing(*_: Any) -> None:
            pass

        def open_job(*_: Any) -> LocalJob:
            self.jobs[LOSES] = sites(self.folder, refusing=False)[LOSES]
            self.jobs[LOSES].durable = True
            return self.jobs[LOSES]

        self.runner = TaskRunner(
            Requests(STEPS), lambda: STEPS, open_job, nothing, nothing, nothing, self.folder, max_body_bytes=1 << 26
        )

    def _answer(self, step: Any, job: LocalJob, request: Request[Any]) -> Any:
        if job.client != LOSES:
            return step(job, request)
        payload = encode(request)
        task = task_pb2.Task(task_id="task", job_id="job", step=request.step, payload=payload_to_proto(payload, 1))
        task.payload.transfer, task.payload.inline_body = 0, payload.body()
        answered = self.runner.answer(task, self.runner.incoming(task))
        return decode(request.reply, answered.payload.header, memoryview(answered.payload.body()))


@dataclass(frozen=True)
class Left:
    """What a job left."""

    state: Mapping[str, bytes]
    """Of its last checkpoint, without what tells how quickly it moved."""
    notes: str
    num_questions: int


def run(folder: Path, variant: str, before: int | None = None, kind: type[Forgetful] = Forgetful) -> Left:
    """Run the job of a variant."""
    job, files = job_of(METHODS[variant], folder)
    clients = dict(sites(folder / "clients", refusing=False))
    exchange, journal = kind(clients, folder / "anew", before), RecordingJournal()
    section = job.cohort
    quorum = Quorum(section.min_clients, section.min_fraction)
    cohort = Cohort(exchange, clients, job_id="job", quorum=quorum, observe=journal.event)
    of_job: Any = execute(
        job, cohort, Run(cohort, journal, None, job.evaluate_every), read_file=files.__getitem__ if files else None
    )
    asyncio.run(of_job)
    assert journal.last is not None
    state = {n: np.asarray(a).tobytes() for n, a in journal.last.state.items() if not n.startswith("run.")}
    notes = " ".join(e.message for e in journal.events if e.kind is EventKind.NOTE)
    return Left(state, notes, exchange.asked)


@pytest.mark.parametrize(
    ("variant", "moment"),
    [(variant, moment) for variant in MOMENTS if variant in METHODS for moment in MOMENTS[variant]],
)
def test_what_was_lost_is_found_again(tmp_path: Path, variant: str, moment: float) -> None:
    """The same bits; who held density ratios is named."""
    (tmp_path / "twin").mkdir()
    (tmp_path / "lost").mkdir()
    twin = run(tmp_path / "twin", variant)
    left = run(tmp_path / "lost", variant, int(moment * twin.num_questions))
    assert left.num_questions > twin.num_questions
    assert left.state == twin.state
    if variant.startswith("reweight"):
        assert f"{LOSES}: the density ratios were lost, and are found again" in left.notes


@pytest.mark.parametrize(
    ("variant", "moment"),
    [(variant, moment) for variant in RESTARTS if variant in METHODS for moment in RESTARTS[variant]],
)
def test_a_client_that_starts_again_holds_what_it_held(tmp_path: Path, variant: str, moment: float) -> None:
    """The same bits, and nothing is asked again."""
    (tmp_path / "twin").mkdir()
    (tmp_path / "again").mkdir()
    twin = run(tmp_path / "twin", variant)
    left = run(tmp_path / "again", variant, int(moment * twin.num_questions), Restarted)
    assert left.num_questions == twin.num_questions
    assert left.state == twin.state
