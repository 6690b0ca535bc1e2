"""What `reweight` would refuse at this client, told before a job."""

from __future__ import annotations

from collections.abc import Iterator

from kernfed.jobs.job_file import JobFile
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed_client.data.guards import left_open
from kernfed_client.data.local_job import LocalJob
from kernfed_client.foresight import Foresight
from kernfed_client.methods.reweight.sums_steps import refuse_few_in_sums
from kernfed_client.models.small_network import load_own_network, refuse_few_of_network


def _reweight(job: LocalJob, file: JobFile, lengthscales: tuple[float, ...]) -> Iterator[str]:
    """Ratios by sums over the rows of all clients come first, networks then."""
    del lengthscales
    settings = file.method
    assert isinstance(settings, ReweightSettings)  # noqa: S101  # by its name
    ratios = settings.ratios
    sums = ratios.pools_classifier or (ratios.source == "matching" and ratios.mixes)
    if settings.scope == "all" and sums:
        refuse_few_in_sums(job)
        yield from left_open.of_functions(job)
    if settings.trainer != "newton":
        refuse_few_of_network(job)
        if name := settings.network.own_name:
            load_own_network(job, name, job.x_train.shape[1], job.num_outputs)
        yield from left_open.of_functions(job)
        yield from left_open.of_networks(job)


FORESIGHT: dict[str, Foresight] = {"reweight": _reweight}
"""By the method's name."""
