"""Files of the coordinator off its event loop, and how a job waits while the disk takes no more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import IO, Final, Protocol, TypeVar

import structlog
from safetensors import SafetensorError

from kernfed.disk_space import is_full
from kernfed.errors import DiskFullError, UnavailableError
from kernfed.federation.events import EventKind, JobEvent

log = structlog.get_logger(__name__)

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0


class Told(Protocol):
    """Whom a job that waits tells so."""

    def event(self, event: JobEvent) -> None:
        """Note a fact."""
        ...


@contextlib.asynccontextmanager
async def opened(open_file: Callable[[], IO[bytes]]) -> AsyncIterator[IO[bytes]]:
    """Open a file in a thread; it is closed when the block ends, and also where the caller is cancelled before that."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_file))
    try:
        file = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise
    with file:
        yield file


def _close(opening: asyncio.Future[IO[bytes]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def until_kept(
    attempt: Callable[[], Awaitable[T]], what: str, told: Told, *, limit_s: float, round_num: int = 0
) -> T:
    """Do what writes to the disk or the database; while that does not go, wait, say so, and do it again.

    Args:
        attempt: Leaves nothing half done when it fails, and may be repeated.
        what: What is to be written, for the text.
        told: Gets a waiting event with the cause, and one without text when it goes on.
        limit_s: How long to wait; `cohort.wait_s` of the job.
        round_num: Of the events.

    Raises:
        DiskFullError: No space for `limit_s`.
        UnavailableError: The store could not be used for as long.
    """
    began = time.monotonic()
    pause, said = FIRST_PAUSE_S, ""
    while True:
        try:
            result = await attempt()
        except (UnavailableError, OSError, SafetensorError) as err:
            if isinstance(err, TimeoutError | ConnectionError):
                raise
            waited = time.monotonic() - began
            cause = f"disk full: {what}" if is_full(err) else f"{what} cannot be written: {err}"
            if waited + pause > limit_s:
                failure = DiskFullError if is_full(err) else UnavailableError
                raise failure(
                    f"{cause}; gave up after {waited:.0f} s (cohort.wait_s); make space at the coordinator and submit "
                    "the job again"
                ) from err
            if cause != said:
                log.error("job waits for the disk", what=what, error=str(err))
                said = cause
                told.event(JobEvent(EventKind.WAITING, round_num, message=f"waiting: {cause}"))
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_S)
        else:
            if said:
                log.info("job goes on", what=what)
                told.event(JobEvent(EventKind.WAITING, round_num))
            return result
