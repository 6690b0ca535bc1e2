"""An engine, the images, and a federation of containers that the tests share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from kernfed_testing.containers import CLIENTS, TAG, Cluster, cluster, remove_leftovers


def _cannot(why: str) -> None:
    """Skip where a person may lack the means; where they are required, as in CI's own stage, that would be a gap."""
    if os.environ.get("KERNFED_CONTAINERS") == "required":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """A container engine that has both images."""
    try:
        client = docker.from_env(timeout=60)
        client.ping()
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

    async def run() -> str:
        async with started.running_job() as job:
            return await job.model_sha256()

    return asyncio.run(run())
