"""Lines in memory between a client's session and the coordinator's servicer, and work that waits to be let go."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kernfed_client.daemon.connection import LineDownError


class Stream:
    """One end of a line: frames that were delivered are read here, and those written wait for their delivery."""

    def __init__(self, ways: deque[bytes]) -> None:
        self._ways = ways
        self.arrived: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def write(self, frame: bytes) -> None:
        """As grpc's."""
        self._ways.append(frame)

    async def read(self) -> bytes | None:
        """As grpc's; None: the line is down."""
        return await self.arrived.get()

    def peer(self) -> str:
        """As grpc's context."""
        return "memory"


class Line:
    """A line between a client and the coordinator, and what is on its way."""

    def __init__(self) -> None:
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.client, self.coordinator = Stream(self.up), Stream(self.down)

    def cut(self) -> None:
        """Lose what is on its way; both ends notice."""
        self.up.clear()
        self.down.clear()
        self.client.arrived.put_nowait(None)
        self.coordinator.arrived.put_nowait(None)


class Later:
    """A worker without a thread: computations wait until they are let go."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def submit(self, compute: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """As `kernfed_client.daemon.worker.Worker`."""
        self.waiting.append((compute, done))

    def compute(self) -> bool:
        """Do the next; False where there is none."""
        if not self.waiting:
            return False
        compute, done = self.waiting.popleft()
        result, error = None, None
        try:
            result = compute()
        except Exception as err:  # handed on, as the worker does
            error = err
        done(result, error)
        return True


class Context(SimpleNamespace):
    """grpc's context of a stream, as far as the service uses it."""

    def __init__(self, end: Stream, name: str, serial: str) -> None:
        super().__init__(read=end.read, write=end.write, peer=end.peer, name=name, serial=serial)


def caller(context: Any, *_roles: object) -> Any:
    """Stands in for `kernfed.pki.identity.require`: a line in memory has no certificate."""
    valid = SimpleNamespace(not_valid_after_utc=datetime(2030, 1, 1, tzinfo=UTC))
    return SimpleNamespace(name=context.name, serial=context.serial, certificate=valid, check_end=lambda _: None)


@contextlib.contextmanager
def in_memory() -> Iterator[None]:
    """Lines need no certificates."""
    with mock.patch("kernfed_server.services.federation.require", caller):
        yield


class Ended:
    """Why a line ended."""

    async def end(self) -> Any:
        """As `kernfed.status.PeerStatus`."""
        raise LineDownError("the line was cut")
