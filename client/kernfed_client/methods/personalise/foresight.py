"""What `personalise` would refuse at this client, told before a job."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernfed.features.kernels import RANDOM_KERNELS
from kernfed.jobs.job_file import JobFile
from kernfed.methods.personalise.embeddings import view_spec
from kernfed.methods.personalise.settings import PersonaliseSettings
from kernfed_client.data.guards import left_open
from kernfed_client.data.local_job import LocalJob
from kernfed_client.foresight import Foresight
from kernfed_client.methods.personalise.embedded import refuse_few_embedded, unlabelled_columns
from kernfed_client.models.small_network import refuse_few_of_network


def _personalise(job: LocalJob, file: JobFile, lengthscales: tuple[float, ...]) -> Iterator[str]:
    """Embeddings come first, networks then; both on columns scaled by this client's rows."""
    del lengthscales
    settings = file.method
    assert isinstance(settings, PersonaliseSettings)  # noqa: S101  # by its name
    spec = view_spec(
        settings.view,
        job.x_train.shape[1],
        job.num_outputs,
        kernel=settings.embedding_kernel,
        num_frequencies=settings.num_frequencies,
        lengthscales=settings.lengthscales,
    )
    spread = job.x_train.std(axis=0) if settings.scale_columns else np.ones(job.x_train.shape[1])
    spread[spread == 0] = 1.0
    refuse_few_embedded(job, spec, job.x_train / spread)
    if settings.embed_unlabelled and (beside := unlabelled_columns(job)):
        rows, columns = beside
        refuse_few_embedded(job, spec, columns / spread, rows.row_numbers)
    if spec.kernel in RANDOM_KERNELS:
        yield from left_open.of_functions(job)
    if settings.trainer == "fedavg":
        refuse_few_of_network(job)
        yield from left_open.of_functions(job)
        yield from left_open.of_networks(job)


FORESIGHT: dict[str, Foresight] = {"personalise": _personalise}
"""By the method's name."""
