"""What tests tell where something breaks: what it broke by, and not what followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kernfed.errors import DataError
from kernfed_testing.nodes import InProcess
from soak.redteam import said


async def test_a_daemon_that_ended_by_itself_says_by_what() -> None:
    """A test sees a line that is closed; the daemon's own error is raised where the daemon is taken down."""

    async def run(_stop: asyncio.Event, ready: Callable[[], None]) -> None:
        ready()
        raise DataError("the source was changed under it")

    node = InProcess(run, waits=False)
    await node.start()
    await asyncio.sleep(0)
    with pytest.raises(DataError, match="under it"):
        await node.kill()
    await node.kill()  # once


async def test_a_wait_that_runs_out_is_told_as_such() -> None:
    """Its error is that of the time, though a cancelled task was first; the line of the test is named."""
    try:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    except TimeoutError:
        shown = pytest.ExceptionInfo.from_current().getrepr()
    report = pytest.TestReport("a.py::b", ("a.py", 1, "b"), {}, "failed", shown, "call", sections=[])
    assert said(report).startswith("TimeoutError at timeouts.py:")
