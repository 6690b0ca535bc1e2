"""Waiting of a step while the client's disk is full: nothing leaves that could not be noted in the audit log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from kernfed.disk_space import is_full
from kernfed.errors import JobCancelledError, StepFailedError

log = structlog.get_logger(__name__)

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
LONGEST_WAIT_S: Final = 24 * 3600.0
"""After so long the step fails; the job's own deadlines end most waits earlier."""


def until_kept(
    attempt: Callable[[], T], what: str, wanted: Callable[[], bool], *, limit_s: float = LONGEST_WAIT_S
) -> T:
    """Do what writes to the disk; while that is full, wait, say so in the log, and do it again.

    Args:
        attempt: May be repeated after it failed.
        what: What is to be written, for the texts.
        wanted: Whether anybody still waits for the result.
        limit_s: How long to wait.

    Raises:
        JobCancelledError: Nobody waits any more.
        StepFailedError: No space for `limit_s`.
        OSError: Another fault of the disk.
    """
    began = time.monotonic()
    pause, said = FIRST_PAUSE_S, False
    while True:
        try:
            result = attempt()
        except OSError as err:
            if not is_full(err):
                raise
            if not wanted():
                raise JobCancelledError(f"the task was cancelled while {what} waited for space on the disk") from err
            waited = time.monotonic() - began
            if waited + pause > limit_s:
                raise StepFailedError(
                    f"{what} cannot be written: the client's disk has been full for {waited:.0f} s; make space there"
                ) from err
            if not said:
                log.error("disk full: the step waits for space", what=what, error=str(err))
                said = True
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE_S)
        else:
            if said:
                log.info("space on the disk again: the step goes on", what=what)
            return result
