"""Containers that are killed, paused, cut off and restarted in the middle of a job leave the same model."""

from __future__ import annotations

import asyncio
import functools

import pytest

from kernfed.federation.events import EventKind, JobEvent
from kernfed_testing.limits import until
from kernfed_testing.machine.containers import Cluster
from kernfed_testing.machine.running_job import Running

pytestmark = pytest.mark.timeout(900)


def waits(event: JobEvent) -> bool:
    """Whether the job says that it waits for somebody."""
    return event.kind is EventKind.WAITING and bool(event.message)


async def test_undisturbed_job_repeats(shared: Cluster, undisturbed: str) -> None:
    """The same job on the same data leaves the same bits, and all containers are healthy meanwhile."""
    async with shared.running_job() as job:
        for what in ("coordinator", *shared.names):
            await asyncio.to_thread(until, functools.partial(is_healthy, shared, what), f"health of {what}")
        assert await job.model_sha256() == undisturbed


def is_healthy(cluster: Cluster, what: str) -> bool:
    """Whether a container says that it is."""
    return health(cluster, what) == "healthy"


def health(cluster: Cluster, what: str) -> str:
    """What the engine's own health check says of a container."""
    return str(cluster.container(what).attrs["State"]["Health"]["Status"])


async def test_client_killed(shared: Cluster, undisturbed: str) -> None:
    """A client that is killed in mid-round and started again changes no bit."""
    async with shared.running_job() as job:
        await job.is_in_mid_job()
        await asyncio.to_thread(shared.container("hungarian").kill)
        await job.event(waits, "waiting for the client")
        await asyncio.to_thread(shared.container("hungarian").start)
        assert await job.model_sha256() == undisturbed


async def test_client_paused(shared: Cluster, undisturbed: str) -> None:
    """A client that stands still for longer than its heartbeats may is dropped, waited for, and taken back."""
    async with shared.running_job() as job:
        await job.is_in_mid_job()
        await asyncio.to_thread(shared.container("va").pause)
        await job.event(waits, "waiting for the client")
        await asyncio.to_thread(shared.container("va").unpause)
        assert await job.model_sha256() == undisturbed


async def test_client_cut_off(shared: Cluster, undisturbed: str) -> None:
    """A client whose network goes away for a while finds back by itself."""
    network = shared.engine.networks.get(shared.name("cleveland"))
    async with shared.running_job() as job:
        await job.is_in_mid_job()
        await asyncio.to_thread(network.disconnect, shared.container("cleveland"))
        await job.event(waits, "waiting for the client")
        await asyncio.to_thread(network.connect, shared.container("cleveland"))
        assert await job.model_sha256() == undisturbed


async def restarted(shared: Cluster, job: Running) -> None:
    """Start the coordinator again on its volume, and see the job go on."""
    await asyncio.to_thread(shared.container().start)
    await asyncio.to_thread(shared.wait_connected)
    await job.goes_on()


async def test_coordinator_killed(shared: Cluster, undisturbed: str) -> None:
    """A coordinator that is killed goes on behind its last checkpoint when its container starts again."""
    async with shared.running_job() as job:
        await job.is_in_mid_job()
        await asyncio.to_thread(shared.container().kill)
        await restarted(shared, job)
        assert await job.model_sha256() == undisturbed


async def test_coordinator_stopped_in_good_order(shared: Cluster, undisturbed: str) -> None:
    """`docker stop` ends the coordinator by SIGTERM, before the engine would kill it; the job goes on later."""
    async with shared.running_job() as job:
        await job.is_in_mid_job()
        await asyncio.to_thread(shared.container().stop, timeout=60)
        assert shared.container().attrs["State"]["ExitCode"] == 0
        await restarted(shared, job)
        assert await job.model_sha256() == undisturbed
