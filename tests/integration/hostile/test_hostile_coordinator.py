"""A coordinator with a valid certificate that asks too much fills neither a client's memory nor its disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import psutil

from kernfed.methods.probe.messages import EchoRequest
from kernfed.methods.ridge.messages import GradientDescentRequest
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed_client.daemon.intake import MAX_ENDING
from kernfed_testing.hostile.against_client import features, prepare, victim
from kernfed_testing.hostile.scripted_coordinator import Line
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import until

SLOW = GradientDescentRequest(
    ridge=1.0, weights=np.zeros((20, 1)), learning_rate=1e-3, num_steps=1_000_000, batch_size=0, seed=1
)
"""A step of a minute, which ends with its process."""
BODY = 4 << 20


async def test_requests_behind_a_slow_step_are_bounded_and_heartbeats_pass(tmp_path: Path) -> None:
    """150 requests behind a step of seconds: the session ends at the ninth, before which heartbeats went on."""
    async with victim(tmp_path) as (coordinator, client):
        line = await coordinator.line()
        await prepare(line, "j")
        memory = psutil.Process(client.pid).memory_info
        before, asked = memory().rss, 0
        await line.ask("j", "j/1/fedavg.local_update", SLOW, "fedavg")
        beats = line.beats
        await until(lambda: line.beats > beats + 1)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.BaseError):
            for asked in range(150):
                await line.ask("j", f"j/1/{asked}", EchoRequest(values=np.ones(BODY // 8)))
        async with asyncio.timeout(LIMIT_S):
            await line.over.wait()
        ended = await client.saw("no session with the coordinator; trying again until there is one")
        assert "8 of one job" in ended["error"]
        assert memory().rss - before < 8 * BODY + (64 << 20)
        again = await coordinator.line()  # it computes on, and is there
        await until(lambda: again.beats > 0)


async def test_a_map_beyond_the_memory_limit_is_refused_in_a_moment(tmp_path: Path) -> None:
    """3 million features of 60 rows: the failure names the remedy, and the process has not grown."""
    async with victim(tmp_path) as (coordinator, client):
        line = await coordinator.line()
        await prepare(line, "j")
        memory = psutil.Process(client.pid).memory_info
        before = memory().rss
        await line.ask("j", "j/1/data.map_features", features(3_000_000), "fedavg")
        failure = (await line.answer()).failure
        assert failure.reason == "INVALID_DATA"
        assert "raise max_memory_bytes of the client file" in failure.message
        assert memory().rss - before < 32 << 20


async def test_whatever_piles_up_is_bounded(tmp_path: Path) -> None:
    """Nothing that a coordinator sends small, and often, is kept without end behind a slow step."""
    async with victim(tmp_path) as (coordinator, client):
        line = await coordinator.line()
        await prepare(line, "j")
        await line.ask("j", "j/1/fedavg.local_update", SLOW, "fedavg")
        memory = psutil.Process(client.pid).memory_info
        before = memory().rss
        small = EchoRequest(values=np.ones(1000))
        for number in range(500):  # these alone are none of its business: an honest coordinator cancels too
            await line.ask("k", f"k/{number}", small)
            await line.send(cancel("k", f"k/{number}"))
        beats = line.beats
        await until(lambda: line.beats > beats)
        floods: tuple[Callable[[Line, int], Awaitable[None]], ...] = (
            lambda line, number: line.send(cancel(f"k{number}")),
            lambda line, _: line.send(cancel("k" * 100_000)),
            lambda line, number: line.ask(f"k{number}", f"k{number}/1", small),
        )
        for sent in floods:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.BaseError):
                for number in range(2 * MAX_ENDING):
                    await sent(line, number)
            async with asyncio.timeout(LIMIT_S):
                await line.over.wait()
            line = await coordinator.line()
        assert memory().rss - before < 64 << 20
        assert len(list((tmp_path / "clients" / "a" / "state" / "jobs").iterdir())) == 1


def cancel(job_id: str, task_id: str = "") -> Any:
    return pb.ConnectResponse(cancel=task_pb2.Cancel(job_id=job_id, task_id=task_id))
