"""Set-up of a service's process: uvloop where it is installed, and an allocator that keeps what it freed.

uvloop makes small rounds a third faster. glibc gives freed megabytes back to the system at once, and the page faults
of getting them again cost more than the copies that they are for: a round of 1 MB bodies takes a third less CPU when
up to `KEPT_BYTES` stay with the process.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A maker of event loops; None stands for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  # an optional dependency
    except ImportError:
        return None
    return uvloop.new_event_loop


KEPT_BYTES = 32 << 20
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def keep_freed_memory() -> None:
    """Tell glibc to keep up to `KEPT_BYTES` of freed memory; nothing happens with other C libraries."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # One arena per thread would keep as much again for each thread that ever placed a fragment.
        mallopt(_M_ARENA_MAX, 2)
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TOP_PAD, 4 << 20)


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the fastest loop there is, in a process set up for a service."""
    keep_freed_memory()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
