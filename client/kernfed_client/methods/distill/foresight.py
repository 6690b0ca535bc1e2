"""What `distill` would refuse at this client, told before a job."""

from __future__ import annotations

from collections.abc import Iterator

from kernfed.jobs.job_file import JobFile
from kernfed_client.data.guards import left_open
from kernfed_client.data.local_job import LocalJob
from kernfed_client.foresight import Foresight
from kernfed_client.methods.distill.bring_your_own import refuse_few_of_kernel


def _distill(job: LocalJob, file: JobFile, lengthscales: tuple[float, ...]) -> Iterator[str]:
    del file
    if job.file.models.get(job.dataset) is None:
        refuse_few_of_kernel(job, lengthscales)
    yield from left_open.of_functions(job)


FORESIGHT: dict[str, Foresight] = {"distill": _distill}
"""By the method's name."""
