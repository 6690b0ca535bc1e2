"""A job from its file to its model, the same over the network and in one process."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import kernfed
from kernfed.cohort import Cohort
from kernfed.job_file import JobFile
from kernfed.messages.base import Array
from kernfed_server.diverged import DivergedRunError
from kernfed_server.evaluation import measure_local
from kernfed_server.preparation import Setup, prepare
from kernfed_server.run import Run
from kernfed_server.workflows import WORKFLOWS

if TYPE_CHECKING:
    from kernfed.model import GlobalModel


async def execute(job: JobFile, cohort: Cohort, run: Run) -> GlobalModel | None:
    """Prepare the clients, run the method, and put the model together.

    A run that resumes passes the same way: preparation is repeated, and the method goes on after the last closed round.

    Args:
        job: What to run.
        cohort: On whom.
        run: Where rounds are recorded.

    Returns:
        The model; None where the method leaves no global one.

    Raises:
        JobError: A client's data or policy do not allow the job, or the quorum was missed for too long.
        DivergedRunError: The method moves away from its solution; carries the last good model.
        KernfedError: The job cannot do what it asks for; the message tells what to do.
    """
    workflow = WORKFLOWS[job.method.name]
    if not workflow.needs_data or job.method.name == "probe":
        await workflow.run(None, job.method, cohort, run)
        return None
    setup = await prepare(job, cohort, run)
    setup = dataclasses.replace(setup, baseline=await measure_local(setup, cohort, run, job.method.ridge))
    try:
        weights = await workflow.run(setup, job.method, cohort, run)
    except DivergedRunError as err:
        err.model = await asyncio.to_thread(assemble, job, setup, err.weights)
        raise
    return None if weights is None else await asyncio.to_thread(assemble, job, setup, weights)


def assemble(job: JobFile, setup: Setup, weights: Array) -> GlobalModel:
    """Put a model together from what was agreed before round 1 and weights on centred features, shape (M, C)."""
    from kernfed.model import GlobalModel

    return GlobalModel(
        task=setup.schema.task,
        feature_names=setup.schema.features,
        target=setup.schema.target,
        classes=setup.classes,
        mean=setup.mean,
        deviation=setup.deviation,
        spec=setup.spec,
        fingerprint=setup.fingerprint,
        weights=weights,
        feature_mean=setup.feature_mean,
        target_mean=setup.target_mean,
        job={
            "name": job.name,
            "method": job.method.model_dump(mode="json"),
            "seed": job.seed,
            "clients": sorted(setup.num_rows),
            "kernfed": kernfed.__version__,
        },
    )
