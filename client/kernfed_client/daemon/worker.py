"""Runs steps, one at a time, in a thread of its own: maths never holds up the session.

The thread is a daemon: a computation cannot be interrupted, so a process that is told to stop does not wait for it.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """A queue of computations and the thread that works through it."""

    def __init__(self) -> None:
        self._work: dict[int, Callable[[], None] | None] = {}
        """By turn, in order; None ends the thread."""
        self._turns = itertools.count(1)
        self._news = threading.Condition()
        threading.Thread(target=self._run, name="kernfed-steps", daemon=True).start()

    def submit(self, compute: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> int:
        """Compute in the worker's thread, after what was queued before; returns its turn, from 1.

        Args:
            compute: What to compute.
            done: Called on the event loop with the result or the error; not called if the loop is closed by then.
        """
        loop = asyncio.get_running_loop()

        def work() -> None:
            result, error = None, None
            try:
                result = compute()
            except BaseException as err:  # handed on
                error = err
            if not loop.is_closed():
                loop.call_soon_threadsafe(done, result, error)

        return self._put(work)

    def withdraw(self, turn: int) -> bool:
        """Forget work whose turn has not come; nobody is told of it. False: its turn has come."""
        with self._news:
            return self._work.pop(turn, None) is not None

    async def run(self, compute: Callable[[], T]) -> T:
        """Compute in the worker's thread and wait for the result."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # None only where T is None

        self.submit(compute, settle)
        return await future

    def close(self) -> None:
        """Let the thread end once the work queued so far is done."""
        self._put(None)

    def _put(self, work: Callable[[], None] | None) -> int:
        with self._news:
            turn = next(self._turns)
            self._work[turn] = work
            self._news.notify()
        return turn

    def _next(self) -> Callable[[], None] | None:
        with self._news:
            self._news.wait_for(lambda: self._work)
            return self._work.pop(next(iter(self._work)))

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work()
            del work  # it holds a request, which may be large
