"""The thread that computes."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator

import pytest

from kernfed_client.daemon.worker import Worker
from kernfed_testing.limits import LIMIT_S


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


async def test_one_at_a_time_in_order(worker: Worker) -> None:
    """Work is done by one thread in the order in which it was asked for."""
    done: list[tuple[int, str]] = []

    def note(i: int) -> None:
        done.append((i, threading.current_thread().name))

    async with asyncio.TaskGroup() as group:
        for i in range(20):
            group.create_task(worker.run(functools.partial(note, i)))
    assert done == [(i, "kernfed-steps") for i in range(20)]


async def test_errors_come_back_and_the_thread_lives(worker: Worker) -> None:
    """An error reaches who asked, and the next piece of work is done."""
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 7) == 7


async def test_loop_is_free_meanwhile(worker: Worker) -> None:
    """The event loop runs on while the thread works."""
    gate = threading.Event()
    waiting = asyncio.ensure_future(worker.run(lambda: gate.wait(LIMIT_S)))
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.wait_for(waiting, LIMIT_S)


async def test_cancelled_caller_does_not_stop_the_thread(worker: Worker) -> None:
    """Work whose caller has gone ends by itself, and the next is done."""
    gate = threading.Event()
    waiting = asyncio.ensure_future(worker.run(lambda: gate.wait(LIMIT_S)))
    await asyncio.sleep(0)
    waiting.cancel()
    gate.set()
    assert await asyncio.wait_for(worker.run(lambda: "next"), 5) == "next"


async def test_close_ends_the_thread() -> None:
    """A closed worker leaves no thread behind."""
    worker = Worker()
    before = await worker.run(threading.current_thread)
    worker.close()
    await asyncio.to_thread(before.join, 5)
    assert not before.is_alive()


async def test_withdrawn_work_is_never_done(worker: Worker) -> None:
    """What waits for its turn can be taken back; what is under way, or done, cannot."""
    gate, done = threading.Event(), list[str]()
    first = worker.submit(lambda: gate.wait(LIMIT_S), lambda *_: None)
    second = worker.submit(lambda: done.append("second"), lambda *_: done.append("told"))
    while worker.withdraw(second + 1) or worker._work.keys() != {second}:
        await asyncio.sleep(0)
    assert not worker.withdraw(first)
    assert worker.withdraw(second)
    gate.set()
    assert await worker.run(lambda: "third") == "third"
    assert done == []
