"""Rows without labels that a client has beside those that it trains on: the `unlabelled` partition of its file."""

from __future__ import annotations

from dataclasses import replace

from kernfed.arrays import Integers
from kernfed.maths.few.rows import without_few
from kernfed_client.data import content
from kernfed_client.data.guards.joined_blocks import FewStandOut, joined_blocks
from kernfed_client.data.guards.split import FIRST_RULES, JOINED_RULES, blocks_of, ordered
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import PartitionData, groups_of
from kernfed_client.data.reading.partitions import read_unlabelled


def unlabelled_rows(job: LocalJob) -> PartitionData | None:
    """The rows, none of which stands out in a column with few others; None: the file names no such partition.

    Raises:
        DataError: The partition cannot be read, or holds other rows than this job read before.
    """
    section = job.file.datasets.get(job.dataset)
    if section is None or section.unlabelled is None:
        return None
    file, groups = section.unlabelled, groups_of(section)

    def read() -> PartitionData:
        rows = read_unlabelled(file, job.schema, job.dataset, job.file.policy.min_rows, groups)
        content.check_unlabelled(job.folder / "setup", rows.x, job.dataset)
        return of_no_few(job, rows)

    return job.memo("unlabelled rows", read)


def of_no_few(job: LocalJob, rows: PartitionData) -> PartitionData:
    """Take rows that stand out in a column with few others as the rest."""
    return replace(rows, x=without_few(rows.x, job.fewest_apart[0])[0])


def blocks_of_points(job: LocalJob, rows: PartitionData) -> Integers:
    """Number the block of each of some rows that are no training rows, (n,), for this client's life.

    Raises:
        PolicyError: One more set of rows would tell too much, beside those of earlier jobs.
    """
    policy = job.file.policy
    plain = replace(rows, labels=None, y=None)
    plain = ordered(plain, job.schema.features) if job.schema.by_record else plain
    anew = job.data.rules > FIRST_RULES
    block = blocks_of(plain, job.schema.features, policy.min_rows, policy.least_groups, anew=anew).of_rows
    if job.data.rules < JOINED_RULES:
        return block
    block = job.deal(plain, block)
    return joined_blocks(block, FewStandOut(plain, policy, job.data.rules).allows)
