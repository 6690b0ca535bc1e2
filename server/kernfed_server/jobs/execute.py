"""A job from its file to its model, the same over the network and in one process."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kernfed.errors import ConfigError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import Array
from kernfed.jobs.job_file import JobFile, named_files
from kernfed.methods.distill.public_set import unpack
from kernfed.methods.heads.messages import HeadLoss
from kernfed.methods.heads.settings import has_head
from kernfed_server.jobs.assembly import feature_model, job_facts
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.evaluation import measure_local
from kernfed_server.jobs.preparation import Setup, prepare
from kernfed_server.jobs.run import Model, Run
from kernfed_server.methods.heads.problem import head_loss
from kernfed_server.methods.registry import WORKFLOWS

if TYPE_CHECKING:
    from kernfed.models.global_model import GlobalModel


async def execute(
    job: JobFile, cohort: Cohort, run: Run, *, read_file: Callable[[str], bytes] | None = None
) -> Model | None:
    """Prepare the clients, run the method, and put the model together.

    A run that resumes passes the same way: preparation is repeated, unless the method recalls what came of it, and the
    method goes on after the last closed round.

    Args:
        job: What to run.
        cohort: On whom.
        run: Where rounds are recorded.
        read_file: Content of a file that the job names, by its SHA-256; may block.

    Returns:
        The model, or what else the method leaves as artifacts; None where there is nothing of the kind.

    Raises:
        JobError: A client's data or policy do not allow the job, or the quorum was missed for too long.
        DivergedRunError: The method moves away from its solution; carries the last good model.
        KernfedError: The job cannot do what it asks for; the message tells what to do.
    """
    workflow = WORKFLOWS[job.method.name]
    if not workflow.needs_data or job.method.name == "probe":
        await workflow.run(None, job.method, cohort, run)
        return None
    maps_features = workflow.maps_features and not workflow.columns_alone(job)
    adapted = workflow.adapt(job)
    setup = workflow.recall(adapted, cohort, run) or await prepare(adapted, cohort, run, map_features=maps_features)
    if maps_features and not has_head(job.method):  # a head's workflow measures heads
        setup = dataclasses.replace(setup, baseline=await measure_local(setup, cohort, run, _ridge(job)))
    if names := named_files(job):
        setup = dataclasses.replace(setup, public=await asyncio.to_thread(_read_public, job, names[0], read_file))
    try:
        weights = await workflow.run(setup, job.method, cohort, run)
    except DivergedRunError as err:
        err.model = await asyncio.to_thread(assemble, job, setup, err.weights)
        raise
    if isinstance(weights, np.ndarray):
        return await asyncio.to_thread(assemble, job, setup, weights)
    return weights


def _ridge(job: JobFile) -> float:
    ridge: float = getattr(job.method, "ridge")  # noqa: B009  # of the methods that map features, all have one
    return ridge


def _read_public(job: JobFile, name: str, read_file: Callable[[str], bytes] | None) -> Array:
    digest = job.files.get(name)
    if read_file is None or digest is None:
        raise ConfigError(f"{name!r}: the file's content is not at hand; submit with `kernfed job submit`")
    assert job.data is not None  # noqa: S101  # methods that name files have data
    return unpack(read_file(digest), len(job.data.features))


def assemble(job: JobFile, setup: Setup, weights: Array) -> GlobalModel:
    """Put a model together from what was agreed before round 1 and weights on centred features.

    Args:
        job: The job.
        setup: What was agreed.
        weights: Shape (M, C); of a head, with a last row for the bias where the job has an intercept.
    """
    facts = {"name": job.name} | job_facts(setup, job.method)
    if not has_head(job.method):
        return feature_model(setup, weights, facts)

    from kernfed.models.global_model import Link

    loss = head_loss(getattr(job.method, "loss"), setup.schema.task)  # noqa: B009  # of heads, all have one
    link = {HeadLoss.SOFTMAX: Link.SOFTMAX, HeadLoss.LOGISTIC: Link.LOGISTIC}.get(loss, Link.IDENTITY)
    bias = weights[-1] if setup.intercept else np.zeros(setup.num_outputs)
    return feature_model(setup, weights[: setup.num_features], facts, target_mean=bias, link=link)
