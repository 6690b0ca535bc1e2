"""Runs steps, one at a time, in a thread of its own: maths never holds up the session.

The thread is a daemon: a computation cannot be interrupted, so a process that is told to stop does not wait for it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """A queue of computations and the thread that works through it."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="kernfed-steps", daemon=True).start()

    async def run(self, compute: Callable[[], T]) -> T:
        """Compute in the worker's thread, after what was queued before."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # None only where T is None

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = compute()
            except BaseException as err:  # handed to the waiting coroutine
                outcome: tuple[T | None, BaseException | None] = (None, err)
            else:
                outcome = (result, None)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, *outcome)

        self._work.put(work)
        return await future

    def _run(self) -> None:
        while True:
            self._work.get()()
