"""Work that runs an event loop of its own, from wherever it is called: a script, a notebook, or code that is async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

Work = Callable[[threading.Event], T]
"""Told by the event, which it looks at now and then, that nobody waits for it any more."""


def run_apart(work: Work[T]) -> T:
    """Do work here and now; beside a loop that runs already, as in a notebook, in a thread, for which this one waits.

    Ctrl-C stops it, at the latest when it next looks at its event.
    """
    stop = threading.Event()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work(stop)
    with ThreadPoolExecutor(1, "kernfed") as pool:
        running = pool.submit(work, stop)
        try:
            return running.result()
        except BaseException:
            stop.set()
            raise


async def run_beside(work: Work[T]) -> T:
    """Do work in a thread while the loop goes on; where this is cancelled, the work is told to stop."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(work, stop)
    except asyncio.CancelledError:
        stop.set()
        raise
