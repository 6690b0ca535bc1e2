"""A client as a process of its own, and the hand-written coordinator that it dials."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np

from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.messages.data import (
    DataSchema,
    DescribeDataRequest,
    LearningTask,
    MapFeaturesRequest,
    MissingRule,
    StandardiseRequest,
)
from kernfed.pki.identity import Role
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed_testing.federation import COLUMNS, make_csv
from kernfed_testing.hostile.scripted_coordinator import Line, ScriptedCoordinator, scripted_coordinator
from kernfed_testing.identities import make_identities
from kernfed_testing.nodes import Process

SCHEMA = DataSchema(
    task=LearningTask.REGRESSION,
    target="y",
    features=COLUMNS,
    classes=(),
    missing=MissingRule.REFUSE,
    test_fraction=0.0,
    seed=1,
)
MAX_MEMORY = 256 << 20


@contextlib.asynccontextmanager
async def victim(root: Path) -> AsyncIterator[tuple[ScriptedCoordinator, Process]]:
    """A client as a process of its own, and the coordinator that it dials."""
    ids = make_identities(root)
    folder = root / "clients" / "a"
    ids.make(Role.CLIENT, "a", into=folder / "identity")
    (folder / "train.csv").write_text(make_csv("a"))
    async with scripted_coordinator(ids) as coordinator:
        (folder / "client.toml").write_text(
            f'coordinator = "localhost:{coordinator.port}"\ndevice = "cpu"\nthreads = 1\nreconnect_max_s = 0.3\n'
            f'max_memory_bytes = {MAX_MEMORY}\n[datasets.default.train]\npath = "train.csv"\n'
        )
        client = Process("kernfed_client", "run", cwd=folder)
        await client.start()
        try:
            yield coordinator, client
        finally:
            await client.kill()


async def prepare(line: Line, job_id: str) -> None:
    """Take a job to where its rows are mapped."""
    scale = StandardiseRequest(classes=(), mean=np.zeros(3), deviation=np.ones(3), median_distance=False)
    for request in (DescribeDataRequest(dataset="default", schema=SCHEMA), scale, features(20)):
        await line.ask(job_id, f"{job_id}/0/{request.step}", request, "fedavg")
        answered = (await line.answer()).reply.task_id
        await line.send(pb.ConnectResponse(acks=[task_pb2.TaskAck(task_id=answered)]))


def features(num: int) -> MapFeaturesRequest:
    return MapFeaturesRequest(features=make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, 3, 1.0, num, 5), num_outputs=1)
