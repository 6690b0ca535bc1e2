"""An exchange whose clients live in worker processes: the same answers, events and bits as in one process.

A worker owns its clients: their rows are read there, and stay there. It is forked from this process before the job
begins. What clients are asked is written to a file, so a worker that dies is replaced by one that does all of it
again; the draws of a job are its seed's, so nothing else comes of it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, cast

import structlog

from kernfed.errors import UnavailableError, error_from_reason
from kernfed.federation.exchange import Call, Exchange, Fault
from kernfed.federation.in_process import outcomes_of
from kernfed.federation.messages.base import R
from kernfed.wire.codec import decode
from kernfed_simulation.engine.asked import Asked, AskedFile
from kernfed_simulation.engine.worker import Steps, do_again, send, serve

log = structlog.get_logger(__name__)

MOST_DEATHS = 3
"""Workers that may die one after another in one step of the same clients."""
_END_S = 10.0
"""Seconds that a worker that was killed may take to be gone."""


@dataclass
class _Worker:
    process: ForkProcess
    line: Connection
    clients: tuple[str, ...]


@dataclass(frozen=True)
class _Answer:
    """What a worker said of a client: a header and a body, or a fault."""

    header: bytes = b""
    body: bytes = b""
    fault: Fault | None = None


class WorkerPool(Exchange):
    """Workers and what they were asked. A context: leaving it ends them all."""

    masks = False

    def __init__(self, steps: Steps, jobs: Mapping[str, Any], num_workers: int, folder: Path) -> None:
        """Start the workers.

        Args:
            steps: The clients' step functions.
            jobs: Their local jobs, of which nothing was read yet.
            num_workers: At most so many; no more than clients.
            folder: For the file of what was asked.
        """
        self._steps, self._jobs, self._closed = steps, jobs, False
        self._asked = AskedFile(folder / "asked")
        self._forking = threading.Lock()
        names, num = sorted(jobs), min(num_workers, len(jobs))
        self._workers: list[_Worker] = []
        for i in range(num):
            self._workers.append(self._forked(tuple(names[i::num]), 0))
        self._threads = ThreadPoolExecutor(num, thread_name_prefix="worker")

    def __enter__(self) -> WorkerPool:
        """As it is."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the workers."""
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the workers that there are."""
        return tuple(worker.process.pid or 0 for worker in self._workers)

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """See `Exchange.ask`; there are no stragglers."""
        asked = Asked.of(call)
        place = self._asked.add(asked)
        loop = asyncio.get_running_loop()
        busy = [i for i, worker in enumerate(self._workers) if not set(worker.clients).isdisjoint(asked.clients)]
        try:
            parts = await asyncio.gather(
                *(loop.run_in_executor(self._threads, self._ask_worker, i, asked, place) for i in busy)
            )
        except BaseException:  # Ctrl-C too: nobody waits for the others
            self.close()
            raise
        found = {client: answer for part in parts for client, answer in part.items()}

        def reply_of(client: str) -> R:
            answer = found[client]
            if answer.fault is not None:
                raise error_from_reason(answer.fault.reason, answer.fault.message)
            body = memoryview(answer.body)
            return cast("R", decode(call.request.reply, answer.header, body, call.dims_of(client)))

        return outcomes_of(call, reply_of)

    def set_up_here(self) -> None:
        """Bring this process's own copies of the clients to where the setup brought those in the workers."""
        do_again(self._steps, self._jobs, self._asked, None, setup=True)

    def close(self) -> None:
        """End the workers; what they compute is given up."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            _end(worker)
        self._threads.shutdown(wait=True)
        self._asked.close()

    def _ask_worker(self, i: int, asked: Asked, place: int) -> dict[str, _Answer]:
        """Answers of a worker's clients; a worker that dies meanwhile is replaced, and asked again. Blocks."""
        for _ in range(MOST_DEATHS):
            worker = self._workers[i]
            mine = asked.to(worker.clients)
            try:
                send(worker.line, mine)
                return {client: _received(worker.line, asked.step, client) for client in mine.clients}
            except (EOFError, OSError):
                if self._closed:
                    raise UnavailableError("the simulation ends") from None
            _end(worker)
            log.warning(
                "a worker died, and another one does its work again",
                pid=worker.process.pid,
                exit_code=worker.process.exitcode,
                clients=len(worker.clients),
            )
            self._workers[i] = self._forked(worker.clients, place)
        raise UnavailableError(
            f"{asked.step}: {MOST_DEATHS} workers with the same {len(self._workers[i].clients)} clients died one after "
            "another, maybe for want of memory; give fewer --workers, fewer rows or features, or more memory"
        )

    def _forked(self, clients: tuple[str, ...], num: int) -> _Worker:
        context = multiprocessing.get_context("fork")
        jobs = {client: self._jobs[client] for client in clients}
        with self._forking:  # another worker that is forked now would hold this one's end of the line
            ours, theirs = context.Pipe()
            lines = [ours, *(worker.line for worker in self._workers)]
            process = context.Process(
                target=serve, args=(theirs, self._steps, jobs, self._asked, num, lines), daemon=True, name="worker"
            )
            with warnings.catch_warnings():  # Python 3.12 warns of threads; ours wait for workers, and hold no lock
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
        return _Worker(process, ours, clients)


def _received(line: Connection, step: str, client: str) -> _Answer:
    told = json.loads(line.recv_bytes())
    if "crash" in told:
        raise RuntimeError(f"{step} at {client} raised in a worker:\n{told['crash']}")
    if told:
        return _Answer(fault=Fault(told["reason"], told["message"]))
    return _Answer(line.recv_bytes(), line.recv_bytes())


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join(_END_S)
    worker.line.close()
