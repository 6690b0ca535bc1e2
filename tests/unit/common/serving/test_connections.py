"""Connections that ask nothing, or not all of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from kernfed.models.estimator import estimator
from kernfed.serving.app import make_app
from kernfed.serving.connections import PatientProtocol
from kernfed_testing.models import make_model

HEALTH = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"
WAIT_S = 60.0


@asynccontextmanager
async def served(state: ServerState) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a service of a model."""
    config = uvicorn.Config(make_app(estimator(make_model()), "abc"), ws="none", lifespan="off", log_config=None)
    config.load()
    made = await asyncio.get_running_loop().create_server(lambda: PatientProtocol(config, state, {}), "127.0.0.1", 0)
    async with made:
        reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()


@pytest.mark.parametrize("first", [b"", b"GET /health HTT", HEALTH, HEALTH + b"GET /he"])
async def test_a_connection_that_asks_nothing_is_ended(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its start, within the head of a request, and after an answer, which comes before."""
    monkeypatch.setattr(PatientProtocol, "idle_s", 0.5)
    async with served(ServerState()) as (reader, writer):
        writer.write(first)
        found = await asyncio.wait_for(reader.read(), WAIT_S)
        assert (b'"status":"ok"' in found) == first.startswith(HEALTH)


async def test_half_a_request_ends_with_the_service_and_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """A service that stops does not wait for its rest, and no log calls that a fault."""
    state = ServerState()
    async with served(state) as (reader, writer):
        writer.write(b"POST /predict HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n{")
        async with asyncio.timeout(WAIT_S):
            while not state.tasks:
                await asyncio.sleep(0.01)
            begun: list[Any] = [*state.tasks]
            for connection in [*state.connections]:
                connection.shutdown()
            assert await reader.read() == b""
            await asyncio.gather(*begun)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
