"""A task runner with small steps, and all that it does to the outside."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernfed.errors import (
    JobStateMissingError,
    PolicyError,
)
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.messages.catalogue import Requests
from kernfed.federation.messages.data import (
    Centred,
    CentreRequest,
    MeanEmbedding,
    MeanEmbeddingRequest,
    Standardised,
    StandardiseRequest,
)
from kernfed.methods.probe.messages import Echo, EchoRequest
from kernfed.v1 import task_pb2
from kernfed.wire.codec import decode, encode
from kernfed.wire.outgoing import payload_to_proto
from kernfed_client.daemon.tasks import Answered, TaskRunner

STANDARDISE = StandardiseRequest(classes=("no", "yes"), mean=np.zeros(2), deviation=np.ones(2), median_distance=False)
CENTRE = CentreRequest(feature_mean=np.full(3, 0.5), target_mean=np.zeros(1))
MEANS = MeanEmbeddingRequest(num_features=3, num_outputs=1)


class Job:
    """A job's state that knows which setup steps it was taken through."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.setup: list[str] = []

    @property
    def num_rows(self) -> int:
        if not self.setup:
            raise JobStateMissingError("no data yet")
        return 7


def standardise(job: Job, request: Any) -> Standardised:
    job.setup.append(request.step)
    return Standardised(num_rows=7, median_distance=0.0)


def centre(job: Job, request: Any) -> Centred:
    job.setup.append(request.step)
    return Centred(num_rows=7)


def means(job: Job, _request: object) -> MeanEmbedding:
    if job.setup != ["data.standardise", "data.centre"]:
        raise JobStateMissingError(f"the setup is not complete: {job.setup}")
    return MeanEmbedding(num_rows=7, feature_mean=np.ones(3), target_mean=np.zeros(1))


def echo(_job: Job, request: Any) -> Echo:
    if request.values[0] < 0:
        raise ValueError("row 3: Jane Doe")
    if request.values[0] > 100:
        raise MemoryError
    return Echo(num_rows=1, values=request.values)


STEPS: dict[type[Request[Any]], Callable[[Any, Any], Reply]] = {
    StandardiseRequest: standardise,
    CentreRequest: centre,
    MeanEmbeddingRequest: means,
    EchoRequest: echo,
}


class FullDisk:
    """A disk that is found full so often, or has another fault, then takes what is written."""

    def __init__(self, times: int, error: int = errno.ENOSPC) -> None:
        self.left, self.error = times, error

    def write(self) -> None:
        if self.left > 0:
            self.left -= 1
            raise OSError(self.error, os.strerror(self.error))


class World:
    """A task runner, and all that it does to the outside."""

    def __init__(
        self,
        state: Path,
        forbid: Callable[[Request[Any], int | None], bool] = lambda _request, _rows: False,
        *,
        disk: FullDisk | None = None,
        steps: Mapping[type[Request[Any]], Callable[[Any, Any], Reply]] = STEPS,
    ) -> None:
        self.opened: list[tuple[str, Path]] = []
        self.asked: list[tuple[str, str, int | None]] = []
        self.recorded: list[tuple[str, Reply]] = []

        def open_job(job_id: str, folder: Path) -> Job:
            self.opened.append((job_id, folder))
            return Job(job_id)

        def permit(request: Request[Any], task: task_pb2.Task, num_rows: int | None) -> None:
            self.asked.append((request.step, task.submitted_by, num_rows))
            if forbid(request, num_rows):
                raise PolicyError("not allowed")

        def record(task: task_pb2.Task, _request: object, reply: Reply, _payload: object) -> None:
            if disk is not None:
                disk.write()
            self.recorded.append((task.task_id, reply))

        def refuse(task: task_pb2.Task, err: PolicyError) -> None:
            if disk is not None:
                disk.write()
            self.refused.append((task.task_id, str(err)))

        self.refused: list[tuple[str, str]] = []
        self.runner = TaskRunner(
            Requests(steps), lambda: steps, open_job, permit, record, refuse, state, max_body_bytes=1 << 16
        )

    def answer(
        self,
        request: Any,
        job_id: str = "job",
        float_bits: int = 64,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Any:
        answered = self.answered(request, job_id, float_bits, wanted)
        return decode(request.reply, answered.payload.header, memoryview(answered.payload.body()))

    def place(self, request: Any) -> int:
        """Of the setup step that the answer stands on."""
        return self.answered(request).place

    def answered(
        self,
        request: Any,
        job_id: str = "job",
        float_bits: int = 64,
        wanted: Callable[[], bool] = lambda: True,
        **digests: bytes,
    ) -> Answered:
        task = task_pb2.Task(
            task_id=f"{job_id}/1/{request.step}",
            job_id=job_id,
            step=request.step,
            payload=payload_to_proto(encode(request), 1),
            float_bits=float_bits,
            submitted_by="ann",
            request_sha256=digests.get("request_sha256", b""),
            setup_sha256=digests.get("setup_sha256", b""),
        )
        return self.runner.answer(task, self.runner.incoming(task), wanted)
