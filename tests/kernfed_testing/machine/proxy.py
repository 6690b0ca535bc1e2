"""A relay between a client and its coordinator that a test can cut, stall, slow down or half-close, to the byte."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable
from dataclasses import dataclass, field

PIECE_BYTES = 16 << 10


class Direction(enum.Enum):
    """Which way bytes flow."""

    UP = "up"
    """From the client to the coordinator."""
    DOWN = "down"
    """From the coordinator to the client."""


@dataclass(eq=False)
class _Line:
    """One relayed connection."""

    client: asyncio.StreamWriter
    coordinator: asyncio.StreamWriter
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    held: bool = False
    """Whether the coordinator's half stays open when the client's is gone."""

    def writer(self, direction: Direction) -> asyncio.StreamWriter:
        return self.coordinator if direction is Direction.UP else self.client

    def abort(self) -> None:
        for writer in (self.client, self.coordinator):
            writer.transport.abort()


class Proxy:
    """Relays TCP connections to a port of this machine. Use as an async context manager."""

    def __init__(self, upstream: Callable[[], int]) -> None:
        """Prepare; nothing listens yet.

        Args:
            upstream: Gives the coordinator's port, which may change when it starts anew.
        """
        self._upstream = upstream
        self._lines: set[_Line] = set()
        self._accepting: set[asyncio.Task[None]] = set()
        self._flows = {direction: asyncio.Event() for direction in Direction}
        self.resume()
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._last_passed = 0.0
        self._cut_at: dict[Direction, int] = {}
        self.port = 0
        self.num_connections = 0
        """Connections relayed so far."""
        self.num_cuts = 0
        self.refuses = False
        """Whether new connections are closed at once."""
        self.delay_s = 0.0
        """Pause before each piece is passed on."""
        self.passed = dict.fromkeys(Direction, 0)
        """Bytes passed on."""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        if self._watching is not None:
            self._watching.cancel()
        self.cut()
        tasks = [*self._accepting, *(task for line in self._lines for task in line.tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break all connections at once, as a pulled cable that is noticed."""
        self.num_cuts += 1
        for line in list(self._lines):
            line.abort()

    def cut_client_side(self) -> None:
        """Break the clients' halves only: the coordinator holds half-open connections."""
        self.num_cuts += 1
        for line in list(self._lines):
            line.held = True
            line.client.transport.abort()

    def stall(self, *directions: Direction) -> None:
        """Let connections stand, and pass nothing on, in these directions or both, until `resume`."""
        for direction in directions or Direction:
            self._flows[direction].clear()

    def resume(self) -> None:
        """Pass on what was held up, and what comes."""
        for flow in self._flows.values():
            flow.set()

    def cut_idle(self, after_s: float) -> None:
        """From now on, break all connections whenever nothing has passed for so long, as some firewalls do."""

        async def watch() -> None:
            clock = asyncio.get_running_loop().time
            self._last_passed = clock()
            while True:
                await asyncio.sleep(after_s / 10)
                if self._lines and clock() - self._last_passed > after_s:
                    self.cut()
                    self._last_passed = clock()

        self._watching = asyncio.ensure_future(watch())

    def half_close(self, direction: Direction) -> None:
        """End one direction of all connections; the other goes on."""
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.writer(direction).write_eof()

    def cut_after(self, direction: Direction, num_bytes: int) -> None:
        """Break all connections once this many more bytes have passed in a direction."""
        self._cut_at[direction] = self.passed[direction] + num_bytes

    async def wait(self, condition: Callable[[], bool], limit_s: float = 100.0) -> None:
        """Wait until a condition on this proxy's counts holds."""
        async with asyncio.timeout(limit_s), self._changed:
            await self._changed.wait_for(condition)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepting = asyncio.current_task()
        assert accepting is not None
        self._accepting.add(accepting)
        try:
            await self._connect(reader, writer)
        finally:  # also where this proxy ends while the coordinator is dialled
            writer.transport.abort()
            self._accepting.discard(accepting)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            return
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream())
        except OSError:
            return
        line = _Line(writer, up_writer)
        self._lines.add(line)
        self.num_connections += 1
        line.tasks = [
            asyncio.ensure_future(self._relay(line, reader, Direction.UP)),
            asyncio.ensure_future(self._relay(line, up_reader, Direction.DOWN)),
        ]
        try:
            await asyncio.wait(line.tasks)
            if line.held:
                await line.coordinator.wait_closed()
        except OSError:
            pass
        finally:
            line.abort()
            self._lines.discard(line)

    async def _relay(self, line: _Line, reader: asyncio.StreamReader, direction: Direction) -> None:
        writer = line.writer(direction)
        with contextlib.suppress(OSError, RuntimeError):  # broken, or closed for writing by a test
            while piece := await reader.read(PIECE_BYTES):
                await self._flows[direction].wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(piece)
                await writer.drain()
                async with self._changed:
                    self.passed[direction] += len(piece)
                    self._last_passed = asyncio.get_running_loop().time()
                    self._changed.notify_all()
                if self.passed[direction] >= self._cut_at.get(direction, self.passed[direction] + 1):
                    del self._cut_at[direction]
                    self.cut()
            await self._flows[direction].wait()
            writer.write_eof()
