"""Files of the coordinator off its event loop, and how a job waits while the disk takes no more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

import structlog
from safetensors import SafetensorError

from kernfed.errors import DiskFullError, UnavailableError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.files import DiskWait, is_full, takes_nothing, until_kept_async

log = structlog.get_logger(__name__)

T = TypeVar("T")
F = TypeVar("F", bound="Closable")


class Closable(Protocol):
    """A file, or a part of one."""

    def close(self) -> None:
        """Close it."""
        ...


class Told(Protocol):
    """Whom a job that waits tells so."""

    def event(self, event: JobEvent) -> None:
        """Note a fact."""
        ...


@contextlib.asynccontextmanager
async def opened(open_file: Callable[[], F]) -> AsyncIterator[F]:
    """Open a file in a thread; it is closed when the block ends, and also where the caller is cancelled before that."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_file))
    try:
        file = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise
    with contextlib.closing(file):
        yield file


def _close(opening: asyncio.Future[F]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def until_kept(
    attempt: Callable[[], Awaitable[T]],
    what: str,
    told: Told,
    *,
    limit_s: float,
    round_num: int = 0,
    done: str = "written",
) -> T:
    """Do what needs the disk or the database; while that does not go, wait, say so, and do it again.

    Args:
        attempt: Leaves nothing half done when it fails, and may be repeated.
        what: What is to be written, or else, for the text.
        told: Gets a waiting event with the cause, and one without text when it goes on.
        limit_s: How long to wait; `cohort.wait_s` of the job.
        round_num: Of the events.
        done: What is to be done to it, for the text.

    Raises:
        DiskFullError: No space for `limit_s`.
        UnavailableError: The store could not be used for as long.
    """

    def cause(err: Exception) -> str | None:
        if isinstance(err, TimeoutError | ConnectionError):
            return None
        if not isinstance(err, UnavailableError | OSError | SafetensorError):
            return None
        return f"disk full: {what}" if is_full(err) else f"{what} cannot be {done}: {err}"

    def tell(words: str, err: Exception | None) -> None:
        if err is None:
            log.info("job goes on", what=what)
        else:
            log.error("job waits for the disk", what=what, error=str(err))
        told.event(JobEvent(EventKind.WAITING, round_num, message=words and f"waiting: {words}"))

    def give_up(words: str, err: Exception, waited_s: float) -> Exception:
        failure = DiskFullError if is_full(err) else UnavailableError
        return failure(
            f"{words}; gave up after {waited_s:.0f} s (cohort.wait_s); {takes_nothing(err) or 'mend that'} at the "
            "coordinator and submit the job again"
        )

    return await until_kept_async(attempt, DiskWait(limit_s, cause, tell, give_up))
