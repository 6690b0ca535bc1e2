"""What the policy here would refuse of a job, told before there is one: the job's first steps on this client's rows.

The scales and the lengthscale of a job are those of all clients' rows. Here they are those of this client's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from kernfed import rng
from kernfed.features.kernels import EXACT_KERNELS, RANDOM_KERNELS
from kernfed.jobs.client_file import ClientFile
from kernfed.jobs.job_file import JobFile, data_schema, lengthscale
from kernfed.maths.statistics import median_distance
from kernfed.maths.tasks import TASKS
from kernfed.methods import rooms
from kernfed.methods.base import Needs
from kernfed.methods.registry import method_of
from kernfed_client.data.finite_moments import finite_moments
from kernfed_client.data.guards import left_open
from kernfed_client.data.guards.dealt_blocks import Dealing
from kernfed_client.data.guards.few_values import refuse_few_alike
from kernfed_client.data.guards.row_sets import refuse_near_sets
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partitions import LocalData

Foresight = Callable[[LocalJob, JobFile, tuple[float, ...]], Iterator[str]]
"""(scaled job, its file, lengthscales of its kernel) -> what the site is to know; raises what a step would refuse."""


def foresee(
    file: ClientFile, job: JobFile, data: LocalData, client: str, dealing: Dealing | None = None
) -> Iterator[str]:
    """Tell what the site is to know of a job's steps.

    Args:
        file: The client file.
        job: The job file.
        data: The rows that the job would have.
        client: This client's name.
        dealing: By which the rows were dealt into blocks beside those of earlier jobs; None: there were none.

    Raises:
        PolicyError: The policy would refuse the job, in the words in which the job would end.
    """
    refuse_near_sets(file, job.cohort.dataset, data_schema(job), data, refused=True)
    if dealing is not None:
        dealing.check()
    if data.train.num_rows < 2:
        return
    method = method_of(job.method)
    with tempfile.TemporaryDirectory() as folder:
        local = LocalJob("foreseen", client, file, lambda *_: data, Path(folder), durable=False)
        _scale(local, job)
        lengthscales = _lengthscales(local, job)
        if method.needs(job.method) is Needs.FEATURES and job.features.kernel in RANDOM_KERNELS:
            refuse_few_alike(local, lengthscales)
            yield from left_open.of_functions(local)
        yield from left_open.of_tests(local)
        of_method: Foresight | None = rooms.merged("kernfed_client.methods", "foresight", "FORESIGHT").get(
            job.method.name
        )
        if of_method is not None:
            yield from of_method(local, job, lengthscales)


def _scale(local: LocalJob, job: JobFile) -> None:
    """Read and scale the rows by moments of their own, where the job scales them at all."""
    schema = data_schema(job)
    data = local.load(job.cohort.dataset, schema)
    mean, deviation = np.zeros(len(schema.features)), np.ones(len(schema.features))
    if job.data is not None and job.data.standardise:
        found, _ = finite_moments(data, schema, local.dataset)
        mean, deviation = found.mean, np.where(found.deviation > 0, found.deviation, 1.0)
    classes = data.classes
    if TASKS[schema.task].has_classes and len(classes) < 2:  # others may have more
        classes = (*classes, *(f"of another client {i}" for i in range(2 - len(classes))))
    local.standardise(classes, mean, deviation)


def _lengthscales(local: LocalJob, job: JobFile) -> tuple[float, ...]:
    """Of the job's kernel, one or P; where clients agree on them, from this client's rows."""
    asked = lengthscale(job)
    if isinstance(asked, list):
        return tuple(asked)
    if not isinstance(asked, str):
        return (float(asked),)
    if job.features.kernel in EXACT_KERNELS:
        return (1.0,)
    draw = None if asked == "median-spaced" else rng.stream(local.schema.seed, "median distance", local.client)
    return (median_distance(local.x_train, draw, least=local.file.policy.min_rows).value or 1.0,)
