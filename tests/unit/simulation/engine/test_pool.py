"""Clients in worker processes: the same bits as in one, also where workers die, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernfed.errors import UnavailableError
from kernfed.federation.exchange import Exchange
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.messages.data import DescribeDataRequest
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed.methods.ridge.messages import GradientDescentRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.registry import STEPS
from kernfed_simulation.engine.pool import WorkerPool
from kernfed_simulation.federation import from_rows, open_cohort
from kernfed_simulation.run import Simulated, simulate
from kernfed_testing.in_process import make_job, regression_rows

FEDAVG = make_job("fedavg", rounds=4, ridge=0.01, learning_rate=0.5, local_steps=3, batch_size=16)
JOBS = {
    "fedavg": FEDAVG,
    "float32": make_job("newton", ridge=0.01, top='precision = "float32"'),
    "own batch normalisation": make_job(
        "reweight",
        task="binary",
        frequencies=None,
        trainer="fedavg",
        rounds=2,
        local_steps=2,
        batch_size=16,
        compare=False,
        cohort='[method.network]\nkind = "mlp"\nwidths = [4]\nbatch_norm = "own"',
    ),
}
"""Without state at the clients, at another precision, and with state in their memory."""


def clients(folder: Path, task: str = "regression") -> dict[str, LocalJob]:
    rows = regression_rows({"a": 40, "b": 30, "c": 50}, shift=0.3)
    if task == "regression":
        return from_rows(rows, (), folder)
    made = {name: type(r)(r.x_train, r.y_train > 0, r.x_test, r.y_test > 0) for name, r in rows.items()}
    return from_rows(made, ("no", "yes"), folder)


def run(job: JobFile, folder: Path, workers: int) -> Simulated:
    assert job.data is not None
    return simulate(job, clients(folder, job.data.task), workers=workers)


def told(done: Simulated) -> list[Any]:
    """All that a run told and left, but for times."""
    weights = None if done.model is None else done.model.weights.tobytes()
    return [weights, done.final, str(done.error), [e.event for e in done.events]]


def stopping(then: Callable[[LocalJob], None], kind: type[Request[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something happen in a worker before client b answers a request of a kind."""
    step = STEPS[kind]

    def stopped(job: LocalJob, request: Request[Any]) -> Reply:
        if job.client == "b":
            then(job)
        return step(job, request)

    monkeypatch.setitem(STEPS, kind, stopped)


def in_workers(folder: Path, job: JobFile, ask: Callable[[WorkerPool, Any], Any]) -> None:
    """Ask clients in two workers to describe their data, in an event loop."""
    pools: list[WorkerPool] = []

    def exchange(steps: Any, jobs: Any) -> Exchange:
        pools.append(WorkerPool(steps, jobs, 2, folder))
        return pools[0]

    cohort = open_cohort(job, clients(folder), exchange=exchange)
    request = DescribeDataRequest(dataset="default", schema=data_schema(job))
    with pools[0]:
        asyncio.run(ask(pools[0], cohort.ask(request)))


@pytest.mark.parametrize("name", JOBS)
def test_workers_give_the_bits_of_one_process(tmp_path: Path, name: str) -> None:
    """Model, metrics, pooled reference, notes and events are the same."""
    one, two = (run(JOBS[name], tmp_path / str(workers), workers) for workers in (0, 2))
    assert one.error is None
    assert told(two) == told(one)


def test_a_worker_that_is_killed_in_mid_round_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the third round, before it answers: another one does its clients' work again, with the same bits."""
    one = run(FEDAVG, tmp_path / "one", 0)
    asked, died = tmp_path / "asked", tmp_path / "died"
    asked.touch()

    def die(_: LocalJob) -> None:
        with asked.open("a") as file:
            file.write("x")
        if asked.stat().st_size == 3:
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    stopping(die, GradientDescentRequest, monkeypatch)
    two = run(FEDAVG, tmp_path / "two", 2)
    assert died.exists()
    # Two rounds, that in which it died, these two again, that one again, the last; and one for the pooled reference.
    assert asked.stat().st_size == 2 + 1 + 2 + 1 + 1 + 1
    assert told(two) == told(one)


def test_workers_that_always_die_end_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where, and what to do."""
    stopping(lambda _: os.kill(os.getpid(), signal.SIGKILL), GradientDescentRequest, monkeypatch)
    done = run(FEDAVG, tmp_path, 2)
    assert isinstance(done.error, UnavailableError)
    assert "ridge.local_update" in str(done.error) or "fedavg.local_update" in str(done.error)
    assert "3 workers with the same 1 clients died one after another" in str(done.error)
    assert "give fewer --workers" in str(done.error)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped in mid-step, as by Ctrl-C, ends its workers, whatever they compute."""
    began = tmp_path / "began"

    def wait(_: LocalJob) -> None:
        began.touch()
        time.sleep(600)

    stopping(wait, DescribeDataRequest, monkeypatch)
    pids: tuple[int, ...] = ()

    async def ask(pool: WorkerPool, answers: Any) -> None:
        nonlocal pids
        pids = pool.pids
        asked = asyncio.ensure_future(answers)
        async with asyncio.timeout(60):
            while not began.exists():
                await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    in_workers(tmp_path, FEDAVG, ask)
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_an_error_of_ours_in_a_worker_is_raised_with_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no error of a client's ends the simulation, as in one process."""

    def fail(_: LocalJob) -> None:
        raise ZeroDivisionError

    stopping(fail, DescribeDataRequest, monkeypatch)
    with pytest.raises(RuntimeError, match=r"data\.describe at b raised in a worker:(.|\n)*ZeroDivisionError"):
        run(FEDAVG, tmp_path, 2)
