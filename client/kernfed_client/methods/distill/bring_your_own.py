"""Models that a client brings itself: what its own file names for a data set, made here. A peer never names code.

`[models.DATASET]` of the client file decides; without it, the job's kernel ridge regression runs.
"""

from __future__ import annotations

import structlog

from kernfed.features.kernels import KernelSpec
from kernfed.jobs.client_models import KernelModelSection, SklearnModelSection
from kernfed.methods.distill.messages import StartDistillationRequest
from kernfed_client.data.guards.few_values import refuse_few_alike
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.distill.learner import KernelLearner, Learner, Lesson
from kernfed_client.methods.distill.networks import NetworkLearner

log = structlog.get_logger(__name__)


def refuse_few_of_kernel(job: LocalJob, lengthscales: tuple[float, ...]) -> None:
    """Refuse the job's kernel on the columns.

    Raises:
        PolicyError: It would tell of few rows, since the columns have few values.
    """
    refuse_few_alike(job, lengthscales, remedy="a model of this client's own ([models] of its file)")


def make_learner(job: LocalJob, lesson: Lesson, request: StartDistillationRequest) -> Learner:
    """The model that this client fits in a job on its data set.

    Raises:
        ConfigError: The client file names a model that cannot be made.
        DataError: It does not fit into memory.
        PolicyError: The job's kernel would tell of few rows, since the columns have few values.
    """
    section = job.file.models.get(job.dataset)
    own_ridge = request.ridge
    if request.pooled_penalty:
        own_ridge *= max(request.total_rows, job.num_rows) / job.num_rows
    if section is None:
        refuse_few_of_kernel(job, request.kernel.lengthscales)
        return KernelLearner(job, lesson, request.kernel, request.ridge, own_ridge)
    log.info("own model", dataset=job.dataset, kind=section.kind)
    if isinstance(section, KernelModelSection):
        scales = request.kernel.lengthscales if section.lengthscale is None else (section.lengthscale,)
        kernel = KernelSpec(section.kernel or request.kernel.kernel, scales, request.kernel.intercept)
        if section.ridge:
            return KernelLearner(job, lesson, kernel, section.ridge, section.ridge)
        return KernelLearner(job, lesson, kernel, request.ridge, own_ridge)
    if isinstance(section, SklearnModelSection):
        from kernfed_client.methods.distill.sklearn_models import SklearnLearner  # noqa: PLC0415  # loads scikit-learn

        return SklearnLearner(job.task, lesson, section)
    return NetworkLearner(job, lesson, section)
