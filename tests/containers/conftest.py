"""An engine, the images, and a federation of containers that the tests share."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from kernfed_testing.machine.containers import CLIENTS, LONG, NUM_ROUNDS, TAG, Cluster, cluster, remove_leftovers


def _cannot(why: str) -> None:
    """Skip where a person may lack the means; where they are required, as in CI's own stage, that would be a gap."""
    if os.environ.get("KERNFED_CONTAINERS") == "required":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def _somebody_listens() -> bool:
    """Whether there is an engine behind a local socket; docker leaves its own socket open where there is none."""
    scheme, _, path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    if scheme != "unix":
        return True
    with socket.socket(socket.AF_UNIX) as ours:
        return ours.connect_ex(path) == 0


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """A container engine that has both images."""
    try:
        if not _somebody_listens():
            raise DockerException
        client = docker.from_env(timeout=60)  # it asks for the engine's version
    except DockerException:
        _cannot("tests/containers needs a container engine, and none answers here")
    try:
        for image in ("kernfed-coordinator", "kernfed-client"):
            client.images.get(f"{image}:{TAG}")
    except ImageNotFound:
        client.close()
        _cannot(f"tests/containers needs {image}:{TAG}: run make images, or make images-airgap")
    remove_leftovers(client)
    yield client
    client.close()


@pytest.fixture(scope="session")
def started(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The shared federation."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    with cluster(engine, folder, CLIENTS) as made:
        yield made


@pytest.fixture
def shared(started: Cluster) -> Cluster:
    """The shared federation, whole again whatever the last test did."""
    started.heal()
    return started


@pytest.fixture(scope="session")
def undisturbed(started: Cluster) -> str:
    """SHA-256 of the model of a job that was left in peace."""
    return asyncio.run(_model_sha256(started, NUM_ROUNDS))


@pytest.fixture(scope="session")
def undisturbed_long(started: Cluster) -> str:
    """The same of a job of more rounds."""
    return asyncio.run(_model_sha256(started, LONG))


async def _model_sha256(cluster: Cluster, num_rounds: int) -> str:
    async with cluster.running_job(num_rounds) as job:
        return await job.model_sha256()
