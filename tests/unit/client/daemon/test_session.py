"""`kernfed_client.daemon.session`."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from kernfed.v1 import federation_service_pb2 as pb
from kernfed_client.daemon import session
from kernfed_client.daemon.connection import LineDownError
from kernfed_testing.limits import LIMIT_S


class Broken:
    """A connection that breaks at once, and of whose parts one takes its time to end."""

    idle_s, silent, unfinished = 0.0, False, ()
    ending: asyncio.Event

    def __init__(self, *_: Any) -> None:
        """As of `Connection`."""

    async def write(self) -> None:
        """The line is down."""
        raise LineDownError("the stream ended")

    async def read(self) -> None:
        """Ends some turns of the loop after it was told to."""
        try:
            await asyncio.Event().wait()
        finally:
            self.ending.set()
            for _ in range(10):
                await asyncio.sleep(0)

    async def heartbeat(self) -> None:
        """Ends at once."""


def _session(reconnect_max_s: float) -> session.ClientSession:
    return session.ClientSession(
        mock.Mock(), "localhost:1", mock.Mock(datasets=()), mock.Mock(), reconnect_max_s, mock.Mock(), lambda: ""
    )


async def test_a_daemon_that_stops_as_its_line_breaks_dials_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation that comes while the parts of a broken connection end is not lost with their error."""
    Broken.ending = asyncio.Event()
    monkeypatch.setattr(session, "Connection", Broken)
    made = _session(reconnect_max_s=0.01)

    async def serve() -> None:
        await made._converse(mock.Mock(), mock.Mock(), pb.Welcome(), lambda: None)  # without a network

    monkeypatch.setattr(made, "_serve", serve)
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(LIMIT_S):
        await Broken.ending.wait()
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()


async def test_a_line_that_breaks_is_dialled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of one connection's parts ends no more than that connection."""
    Broken.ending = asyncio.Event()
    monkeypatch.setattr(session, "Connection", Broken)
    made = _session(reconnect_max_s=0.01)
    dialled = 0
    again = asyncio.Event()

    async def serve() -> None:
        nonlocal dialled
        dialled += 1
        if dialled == 3:
            again.set()
        await made._converse(mock.Mock(), mock.Mock(), pb.Welcome(), lambda: None)

    monkeypatch.setattr(made, "_serve", serve)
    monkeypatch.setattr(session, "backoff_s", lambda *_: 0.0)
    running = asyncio.ensure_future(made.run())
    try:
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait({running, asyncio.ensure_future(again.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert again.is_set()
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])
