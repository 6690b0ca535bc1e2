"""What stands between institutions: firewalls, revoked certificates, new releases, full disks."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator

import docker
import pytest

from kernfed.federation.events import EventKind
from kernfed_testing.limits import until
from kernfed_testing.machine.containers import CLIENTS, LONG, SPACE, TAG, Cluster, cluster

pytestmark = pytest.mark.timeout(900)

NEXT = "test-next"
NEXT_VERSION = "99.0.0"

FORWARD = """
import asyncio

async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def serve(reader, writer):
    there = await asyncio.open_connection("upstream", 8470)
    await asyncio.gather(pump(reader, there[1]), pump(there[0], writer), return_exceptions=True)

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 8470)
    async with asyncio.timeout(3600):
        await server.serve_forever()

asyncio.run(main())
"""
"""A firewall of one rule: forwards the coordinator's port and nothing else."""

REACHES = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
except OSError:
    sys.exit(1)
"""


@pytest.fixture
def firewalled(shared: Cluster) -> Iterator[Cluster]:
    """The shared federation with `va` behind a firewall that lets it reach the coordinator's port alone."""
    engine = shared.engine
    site = engine.networks.create(shared.name("site"), internal=True, labels=shared.labels)
    wall = shared.run(
        "wall",
        f"kernfed-coordinator:{TAG}",
        shared.name("site"),
        entrypoint=["python3", "-c", FORWARD],
        healthcheck={"test": ["NONE"]},
    )
    site.disconnect(wall)
    site.connect(wall, aliases=["coordinator"])
    outside = engine.networks.get(shared.name("operators"))
    outside.disconnect(shared.container())
    outside.connect(shared.container(), aliases=["upstream"])
    outside.connect(wall)
    shared.container("va").remove(force=True)
    shared.start_client("va", network="site")
    yield shared
    shared.container("va").remove(force=True)
    wall.remove(force=True, v=True)
    site.remove()
    shared.start_client("va")


async def test_one_outbound_port_is_enough(firewalled: Cluster, undisturbed: str) -> None:
    """A client that can reach the coordinator's port and nothing else takes part, and the model is the same."""

    def reaches(host: str, port: int) -> bool:
        status, _ = firewalled.execute("va", "python3", "-c", REACHES, host, str(port))
        return status == 0

    assert await asyncio.to_thread(reaches, "coordinator", 8470)
    assert not await asyncio.to_thread(reaches, "coordinator", 8471)
    assert not await asyncio.to_thread(reaches, "upstream", 8470)
    assert not await asyncio.to_thread(reaches, firewalled.name("cleveland"), 8470)
    assert not await asyncio.to_thread(reaches, "192.0.2.1", 443)
    await asyncio.to_thread(firewalled.wait_connected)
    async with firewalled.running_job() as job:
        assert await job.model_sha256() == undisturbed


async def test_revoked_client_is_cut_off_and_comes_back_by_a_new_token(shared: Cluster, undisturbed_long: str) -> None:
    """Revoked in mid-job, a client is cut off with the reason, and the job waits; enrolled anew, it takes its place."""
    async with shared.running_job(LONG) as job:
        await job.is_in_mid_job()
        status, text = await asyncio.to_thread(shared.execute, "coordinator", "kernfed", "pki", "revoke", "va")
        assert status == 0, text
        await job.event(lambda e: e.kind is EventKind.WAITING and bool(e.message), "waiting for the client")
        await asyncio.to_thread(until, lambda: "REVOKED" in shared.logs("va"), "the reason in the client's log")
        status, text = await asyncio.to_thread(shared.execute, "va", "kernfed-client", "doctor")
        assert status == 4
        assert "revoked" in text
        assert "new token" in text
        await asyncio.to_thread(enrol_anew, shared)
        assert await job.model_sha256() == undisturbed_long


def enrol_anew(shared: Cluster) -> None:
    """What docs/deploy.md tells the administrator of a revoked client to do."""
    status, text = shared.execute("va", "rm", "-r", "/var/lib/kernfed/identity")
    assert status == 0, text
    command = ("sh", "-c", "umask 077; kernfed pki token va >/run/kernfed/tokens/va")
    status, text = shared.execute("coordinator", *command)
    assert status == 0, text
    shared.container("va").restart(timeout=10)
    shared.wait_connected()


@pytest.fixture(scope="module")
def next_release(engine: docker.DockerClient) -> Iterator[str]:
    """Tag of images that say to be a later release."""
    for image in ("kernfed-coordinator", "kernfed-client"):
        dockerfile = (
            f"FROM {image}:{TAG}\nUSER 0\n"
            f"RUN sed -i 's/^Version: .*/Version: {NEXT_VERSION}/' "
            "/opt/kernfed/lib/python3*/site-packages/kernfed-*.dist-info/METADATA\nUSER 10001:10001\n"
        )
        engine.images.build(
            fileobj=io.BytesIO(dockerfile.encode()), tag=f"{image}:{NEXT}", rm=True, network_mode="none"
        )
    yield NEXT
    for image in ("kernfed-coordinator", "kernfed-client"):
        engine.images.remove(f"{image}:{NEXT}", force=True)


async def test_upgrade_in_mid_job(shared: Cluster, undisturbed_long: str, next_release: str) -> None:
    """Coordinator, then clients, are replaced by containers of another tag on the same volumes; the job goes on."""
    async with shared.running_job(LONG) as job:
        await job.is_in_mid_job()
        await asyncio.to_thread(replace, shared, "coordinator", next_release)
        await asyncio.to_thread(shared.wait_connected)
        await job.goes_on()
        for client in shared.names:
            await job.is_in_mid_job()
            await asyncio.to_thread(replace, shared, client, next_release)
        assert await job.model_sha256() == undisturbed_long
    for what, command in (("coordinator", "kernfed-coordinator"), ("va", "kernfed-client")):
        _, text = await asyncio.to_thread(shared.execute, what, command, "--version")
        assert NEXT_VERSION in text
    for what in ("coordinator", *shared.names):
        await asyncio.to_thread(replace, shared, what, TAG)


def replace(shared: Cluster, what: str, tag: str) -> None:
    """Stop a container in good order, remove it, and start one of another tag on its volume."""
    container = shared.container(what)
    container.stop(timeout=30)
    container.remove()
    if what == "coordinator":
        shared.start_coordinator(tag)
    else:
        shared.start_client(what, tag)


@pytest.fixture(scope="module")
def small(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A federation whose coordinator and clients have little space, in memory."""
    with cluster(engine, tmp_path_factory.mktemp("small"), CLIENTS, space_mb=16) as made:
        yield made


def fill(cluster: Cluster, what: str) -> None:
    """Leave no byte free where a container keeps its state."""
    cluster.execute(what, "sh", "-c", f"cat /dev/zero >{SPACE}/filler 2>/dev/null")


def make_space(cluster: Cluster, what: str) -> None:
    """Undo `fill`."""
    status, text = cluster.execute(what, "rm", f"{SPACE}/filler")
    assert status == 0, text


async def test_full_volume_of_the_coordinator(small: Cluster, undisturbed: str) -> None:
    """While the coordinator's volume is full the job waits and says why; with space again it leaves the same model."""
    async with small.running_job() as job:
        await job.is_in_mid_job()
        await asyncio.to_thread(fill, small, "coordinator")
        await job.event(lambda e: e.kind is EventKind.WAITING and "disk full" in e.message, "waiting for the disk")
        before = (await job.info()).round_num
        await asyncio.sleep(2)
        assert (await job.info()).round_num <= before + 1
        await asyncio.to_thread(make_space, small, "coordinator")
        assert await job.model_sha256() == undisturbed


async def test_full_volume_of_a_client(small: Cluster, undisturbed: str) -> None:
    """A client whose volume is full says so in its log and waits; with space again the job ends as ever."""
    async with small.running_job() as job:
        await job.is_in_mid_job()
        await asyncio.to_thread(fill, small, "va")
        await asyncio.to_thread(until, lambda: "the step waits for space" in small.logs("va"), "the reason in the log")
        await asyncio.to_thread(make_space, small, "va")
        assert await job.model_sha256() == undisturbed
