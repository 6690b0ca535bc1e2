"""Questions and answers of every method in no order, of other rounds and other jobs: typed refusals, and no fault."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernfed.errors import KernfedError, StepFailedError, error_from_reason
from kernfed.federation.cohort import Cohort
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.messages.catalogue import Requests
from kernfed.federation.quorum import Quorum
from kernfed.v1 import task_pb2
from kernfed.wire.codec import encode
from kernfed.wire.outgoing import payload_to_proto
from kernfed_client.daemon.tasks import TaskRunner
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.registry import STEPS
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.run import Run
from kernfed_testing.in_process import RecordingJournal
from kernfed_testing.methods.variants import METHODS, job_of, sites

pytestmark = pytest.mark.redteam
VARIANTS = [
    name
    for name in ("newton", "head", "fedprox", "distill", "personalise newton", "reweight own", "em-kofl", "online")
    if name in METHODS
]
WANDERS = "cat"
Answers = list[tuple[Request[Any], Reply]]


def run(folder: Path, variant: str, answer: Callable[[Any, LocalJob, Request[Any]], Reply]) -> None:
    """Run the job of a variant, in which one client answers by `answer`, given its step."""
    job, files = job_of(METHODS[variant], folder)
    clients = dict(sites(folder / "clients", refusing=False))
    journal = RecordingJournal()

    def asked(step: Any, local: LocalJob, request: Request[Any]) -> Reply:
        reply: Reply = answer(step, local, request) if local.client == WANDERS else step(local, request)
        return reply

    exchange = InProcessExchange({kind: functools.partial(asked, step) for kind, step in STEPS.items()}, clients)
    cohort = Cohort(exchange, clients, job_id="job", quorum=Quorum(1, 0.1), observe=journal.event)
    made: Any = Run(cohort, journal, None, job.evaluate_every)
    asyncio.run(execute(job, cohort, made, read_file=files.__getitem__ if files else None))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    """What one client is asked in each job, and answers."""
    found: dict[str, Answers] = {}
    for variant in VARIANTS:
        noted: Answers = found.setdefault(variant, [])

        def answer(step: Any, local: LocalJob, request: Request[Any], noted: Answers = noted) -> Reply:
            noted.append((request, step(local, request)))
            return noted[-1][1]

        run(tmp_path_factory.mktemp("honest"), variant, answer)
        assert len(noted) > 3
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_of_other_rounds(tmp_path: Path, honest: dict[str, Answers], variant: str) -> None:
    """A client that answers by what it said at another moment, or by any reason: the job ends, or says why not."""
    draw = random.Random(f"{variant} 1")

    def answer(step: Any, local: LocalJob, request: Request[Any]) -> Reply:
        reply: Reply = step(local, request)
        way = draw.random()
        if way < 0.6:
            return reply
        if way < 0.85:
            return draw.choice([said for _, said in honest[variant] if type(said) is type(reply)])
        reason = draw.choice(["JOB_STATE_MISSING", "INVALID_DATA", "UNPROVEN_JOB", "no such reason", ""])
        raise error_from_reason(reason, "\x1b[2J")

    failed: list[KernfedError] = []
    try:
        run(tmp_path, variant, answer)
    except KernfedError as err:
        failed.append(err)
    assert all(str(err) for err in failed)


@pytest.mark.parametrize("variant", VARIANTS)
def test_questions_in_no_order(tmp_path: Path, honest: dict[str, Answers], variant: str) -> None:
    """A client that is asked from any moment on, in no order, and what other methods ask, says what it lacks."""
    draw = random.Random(f"{variant} 2")
    everything = [request for asked in honest.values() for request, _ in asked]
    own = [request for request, _ in honest[variant]]
    number = 0

    def open_job(*_: Any) -> LocalJob:
        nonlocal number
        number += 1
        return sites(tmp_path / str(number), refusing=False)[WANDERS]

    def nothing(*_: Any) -> None:
        pass

    runner = TaskRunner(
        Requests(STEPS), lambda: STEPS, open_job, nothing, nothing, nothing, tmp_path, max_body_bytes=1 << 26
    )
    replies, refused = 0, []
    for request in own[: draw.randrange(len(own))] + [draw.choice(draw.choice((own, everything))) for _ in range(60)]:
        payload = encode(request)
        task = task_pb2.Task(task_id="task", job_id=draw.choice("jjk"), step=request.step)
        task.payload.CopyFrom(payload_to_proto(payload, 1))
        task.payload.transfer, task.payload.inline_body = 0, payload.body()
        try:
            runner.answer(task, runner.incoming(task))
            replies += 1
        except KernfedError as err:
            refused.append((err.reason, f"{request.step}: {err} {err.__cause__!r}"))
    assert [text for reason, text in refused if reason in (StepFailedError.reason, KernfedError.reason)] == []
    assert replies
    assert "JOB_STATE_MISSING" in dict(refused)
