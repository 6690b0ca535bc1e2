"""What each client is told to take of an agreement: the same requests when all agree, when one joins, and when one lost
what it was told.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from kernfed.arrays import Array
from kernfed.errors import InvalidReplyError, JobError
from kernfed.features.kernels import EXACT_KERNELS
from kernfed.features.spec import fingerprint
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.data import (
    CentreRequest,
    DataSchema,
    DescribeDataRequest,
    MapFeaturesRequest,
    StandardiseRequest,
)
from kernfed.jobs.job_file import JobFile, data_schema, lengthscale
from kernfed.jobs.plugins_used import asked_of_clients
from kernfed.maths.tasks import TASKS
from kernfed.methods.base import COLUMNS
from kernfed.methods.shared_settings import AUTO
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.agreement import Agreement, Earlier
from kernfed_server.jobs.start.descriptions import LaterDescription


def asked_schema(job: JobFile, earlier: Earlier | None) -> DataSchema:
    """The schema by which clients read their data, with the classes of an earlier job."""
    schema = data_schema(job)
    return schema if earlier is None else replace(schema, classes=earlier.agreement.classes)


def describe_request(job: JobFile, schema: DataSchema) -> DescribeDataRequest:
    """Describe the data set by the schema, with the job's packages from outside as they are installed here."""
    return DescribeDataRequest(dataset=job.cohort.dataset, schema=schema, plugins=asked_of_clients(job))


def standardise_request(
    job: JobFile, classes: tuple[str, ...], mean: Array, deviation: Array, bounds: tuple[float, ...]
) -> StandardiseRequest:
    """Take classes and scales, and state the median distance where the job's lengthscale follows from it."""
    rule = lengthscale(job)
    median = isinstance(rule, str) and job.features.kernel not in EXACT_KERNELS
    return StandardiseRequest(
        classes=classes,
        mean=mean,
        deviation=deviation,
        median_distance=median,
        drawn=median and rule in ("median", COLUMNS, AUTO),
        chosen=median and rule == AUTO,
        bounds=bounds,
    )


def map_request(job: JobFile, agreement: Agreement, copies: int) -> MapFeaturesRequest:
    """Draw the agreed feature map; `copies` as in `MapFeaturesRequest`."""
    num_outputs = TASKS[data_schema(job).task].num_outputs(agreement.classes)
    return MapFeaturesRequest(features=agreement.spec, num_outputs=num_outputs, copies=copies)


def centre_request(agreement: Agreement) -> CentreRequest:
    """Subtract the pooled means."""
    return CentreRequest(feature_mean=agreement.feature_mean, target_mean=agreement.target_mean)


def check_fingerprint(client: str, found: str, own: str) -> None:
    """Refuse features that a client drew otherwise.

    Raises:
        InvalidReplyError: Its fingerprint is not the coordinator's own one.
    """
    if found != own:
        raise InvalidReplyError(
            f"{client} drew other random features (fingerprint {found[:12]!r}, the coordinator's is {own[:12]!r}); "
            "install the same version of kernfed at both ends"
        )


async def recall(
    job: JobFile, agreement: Agreement, cohort: Cohort, run: Run, *, copies: int = 0, earlier: Earlier | None = None
) -> None:
    """Go on with what was agreed in an earlier life of the run: nobody is asked, and who forgot it is told it again.

    Args:
        job: What runs.
        agreement: Of its clients.
        cohort: Takes the requests for asked.
        run: Where notes go.
        copies: As in `MapFeaturesRequest`.
        earlier: The other job whose clients these joined, if any.

    Raises:
        JobError: This coordinator draws other features than those that were agreed on.
    """
    for client, fault in sorted(cohort.excluded.items()):
        run.note(f"{client} is left out of this job as before the restart: {fault}")
    schema = asked_schema(job, earlier)
    later = LaterDescription(schema, cohort, run, agreement.backbone, agreement.descriptions)
    known = cohort.num_rows
    cohort.register_rows({c: n for c, n in agreement.num_rows.items() if c not in known})
    cohort.recall(describe_request(job, schema), later)
    scales = agreement.mean, agreement.deviation, agreement.bounds
    cohort.recall(standardise_request(job, agreement.classes, *scales))
    if not agreement.fingerprint:
        return
    own = await asyncio.to_thread(fingerprint, agreement.spec)
    if own != agreement.fingerprint:
        raise JobError(
            f"this coordinator draws other random features (fingerprint {own[:12]!r}) than those that the job was "
            f"begun with ({agreement.fingerprint[:12]!r}), so its weights would mean nothing; go on with the release "
            "of kernfed and on the platform of before the restart, or submit the job again"
        )
    cohort.recall(
        map_request(job, agreement, copies),
        lambda client, mapped: check_fingerprint(client, mapped.fingerprint, own),
    )
    if job.features.intercept:
        cohort.recall(centre_request(agreement))
