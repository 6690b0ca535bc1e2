"""Daemons that tests start, stop and kill: in this process, or as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from kernfed_testing import limits
from kernfed_testing.forked import Daemon, start_daemon

LIMIT_S = limits.LIMIT_S
"""Bound of every wait."""


async def until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for what has no event of its own."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.01)


class Node(Protocol):
    """A coordinator or client daemon that can be started, stopped and killed."""

    async def start(self) -> None:
        """Bring it up; returns once it serves."""

    async def stop(self) -> None:
        """End it in good order, as SIGTERM does."""

    async def kill(self) -> None:
        """End it at once."""


class InProcess:
    """A daemon as a task of this process."""

    def __init__(self, run: Callable[[asyncio.Event, Callable[[], None]], Any], waits: bool) -> None:
        self._run = run
        self._waits = waits
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """See `Node.start`."""
        self._stop = asyncio.Event()
        ready = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(self._stop, ready.set))
        if self._waits:
            waiting = asyncio.ensure_future(ready.wait())
            done, _ = await asyncio.wait([self._task, waiting], timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            assert done, "the daemon does not come up"
            if self._task in done:
                self._task.result()

    async def stop(self) -> None:
        """See `Node.stop`."""
        self._stop.set()
        if self._task is not None:
            async with asyncio.timeout(LIMIT_S):
                await self._task

    async def kill(self) -> None:
        """Cancel it.

        Raises:
            Exception: What it ended by, where it had ended by itself: whatever else a test saw came of that.
        """
        if self._task is not None:
            task, self._task = self._task, None
            if task.done() and not task.cancelled() and (err := task.exception()) is not None:
                raise err
            task.cancel()
            await asyncio.wait([task], timeout=LIMIT_S)


class Process:
    """A daemon as a process, started by its command; its log lines are kept."""

    def __init__(self, *command: str, cwd: Path, env: Mapping[str, str] | None = None, fresh: bool = False) -> None:
        """Prepare.

        Args:
            command: Module, and its arguments.
            cwd: Its folder.
            env: More of its environment; what an interpreter reads as it starts has an effect too.
            fresh: Whether to start an interpreter even where one with libraries could be forked.
        """
        self._command = command
        self._cwd = cwd
        self.env = dict(env or {})
        self._fresh = fresh
        self._process: asyncio.subprocess.Process | Daemon | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self.log: list[dict[str, Any]] = []
        """Log events since the last start."""
        self.traces: list[str] = []
        """Tracebacks that any of its lives wrote."""

    @property
    def pid(self) -> int:
        """Process id of the present life."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """See `Node.start`; use `saw` to wait until it serves."""
        self.log = []
        command = (*self._command, "--log-format", "json")
        if self._fresh or self.env:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *command),
                cwd=self._cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "OMP_NUM_THREADS": "1", **self.env},
            )
        else:
            self._process = await start_daemon(*command, cwd=self._cwd)
        assert self._process.stderr is not None
        self._reading = asyncio.ensure_future(self._read(self._process.stderr))

    async def _read(self, stderr: asyncio.StreamReader) -> None:
        async for line in stderr:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": line.decode(errors="replace").rstrip(), "level": "text"}
            if "exception" in event or event["event"].startswith("Traceback "):
                self.traces.append(f"{event['event']}\n{event.get('exception', '')}".rstrip())
            async with self._news:
                self.log.append(event)
                self._news.notify_all()

    async def saw(self, event: str, **fields: object) -> dict[str, Any]:
        """Wait for a log event since the last start."""

        def find() -> dict[str, Any] | None:
            return next((e for e in self.log if e["event"] == event and fields.items() <= e.items()), None)

        try:
            async with asyncio.timeout(LIMIT_S), self._news:
                await self._news.wait_for(lambda: find() is not None)
        except TimeoutError:
            state = "has ended" if self._reading is not None and self._reading.done() else "runs"
            raise AssertionError(f"no {event!r} from {self._command}, which {state}: {self.log[-5:]}") from None
        found = find()
        assert found is not None
        return found

    async def wait(self) -> int:
        """Wait until it ends of itself; its exit status."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """See `Node.stop`."""
        await self._end(lambda process: process.terminate())

    async def kill(self) -> None:
        """SIGKILL."""
        await self._end(lambda process: process.kill())

    async def _end(self, end: Callable[[asyncio.subprocess.Process | Daemon], None]) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            end(self._process)
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            raise
        finally:
            assert self._reading is not None
            await asyncio.wait([self._reading], timeout=LIMIT_S)  # to the end of what the process wrote
            self._reading.cancel()
        self._process = None
