"""Set-up of a service's process: its files, its descriptors and signals, its event loop, its allocator.

Files and folders that it makes are its user's alone, whatever the umask was. It may have as many descriptors as the
system lets it. SIGTERM and SIGINT stop it, and SIGHUP, by which log rotation greets every service, changes nothing.

uvloop makes small rounds a third faster. glibc gives freed megabytes back to the system at once, and the page faults
of getting them again cost more than the copies that they are for: a round of 1 MB bodies takes a third less CPU when
up to `KEPT_BYTES` stay with the process. Nobody looks for garbage among what was loaded before the start.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import structlog

log = structlog.get_logger(__name__)

T = TypeVar("T")

_PRIVATE_UMASK: Final = 0o077
_MOST_DESCRIPTORS: Final = 1 << 16
"""More than sessions and strangers need; a table for as many costs the system some megabytes."""


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


def raise_descriptor_limit() -> int:
    """Let this process open as many files and sockets as the system allows it, within reason.

    Returns:
        How many that are. The usual soft limit of 1,024 is for programs that use `select`, as these services do not;
        a thousand strangers who connect and say nothing would use it up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # a system with a lower bound of its own
        return soft
    return wanted


def stop_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set. SIGHUP is noted in the log, and nothing else. Called in the event loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(
        signal.SIGHUP, log.info, "SIGHUP changes nothing: restart the service to read its file again"
    )
    return stop


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the fastest loop there is, in a process set up for a service."""
    os.umask(_PRIVATE_UMASK)
    raise_descriptor_limit()
    keep_freed_memory()
    gc.freeze()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
