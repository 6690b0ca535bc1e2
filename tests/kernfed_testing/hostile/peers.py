"""A federation of two honest clients and some that break the protocol, and the ways in which they do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
import structlog

from kernfed.federation.messages.base import Reply
from kernfed.v1 import task_pb2
from kernfed_testing.federation import Federation
from kernfed_testing.hostile.scripted_client import Misbehave, ScriptedClient

Logs = list[MutableMapping[str, Any]]
"""Lines of a log."""
TRIO = ["a", "b", "mallory"]
STEP = "ridge.local_solve"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Federation]:
    """The honest are there; the others come as scripted clients."""
    clients, hostile = ["a", "b", "mallory", "eve"], ["mallory", "eve"]
    async with Federation(tmp_path_factory.mktemp("hostile"), clients, idle=hostile, heartbeat_s=(0.3, 30.0)) as fed:
        yield fed


@pytest.fixture(autouse=True)
def no_trace() -> Iterator[Logs]:
    """Nothing that a client does is an error of the coordinator."""
    with structlog.testing.capture_logs() as logs:
        yield logs
    assert [e for e in logs if e["log_level"] in ("error", "critical")] == []


@contextlib.asynccontextmanager
async def mallory(
    fed: Federation, misbehave: Misbehave | None = None, *, step: str = STEP, **settings: Any
) -> AsyncIterator[ScriptedClient]:
    """A scripted client; only the step under test is tampered with."""

    async def at_step(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        return await misbehave(client, task, reply) if task.step == step and misbehave else True

    folder = fed.client_folder("mallory")
    async with ScriptedClient(folder, fed.ports.federation, misbehave=at_step, **settings) as client:
        yield client
    await fed.wait_disconnected("mallory")


def with_reply(change: Callable[[Any], Reply]) -> Misbehave:
    """Answer with a changed reply."""

    async def misbehave(client: ScriptedClient, task: task_pb2.Task, reply: Any) -> bool:
        await client.send_reply(task.task_id, change(reply))
        return False

    return misbehave


def scaled(name: str, factor: float) -> Misbehave:
    """Answer with one array so many times as large."""
    return with_reply(lambda reply: replace(reply, **{name: factor * getattr(reply, name)}))


def job(fed: Federation) -> str:
    """A job of one round that needs two of the three."""
    return fed.job("dkrr", TRIO, cohort_min_clients=2, cohort_deadline_s=0.5)
