"""How many rows the rounds of a stream would have here, told before a job, and which columns make them grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from kernfed.arrays import Floats
from kernfed.jobs.job_file import JobFile
from kernfed.methods.online.settings import StreamSettings
from kernfed.methods.online.stream_step import GROWN, rows_of_round
from kernfed.methods.registry import METHODS
from kernfed.wording import listed
from kernfed_client.data.guards import left_open
from kernfed_client.data.local_job import LocalJob
from kernfed_client.foresight import Foresight
from kernfed_client.methods.online.round_rows import Fewest
from kernfed_client.methods.online.taking import fewest_of, most_rows

_MOST_LOOKED_AT = 5_000
"""Rows that are looked at."""


def _online(job: LocalJob, file: JobFile, lengthscales: tuple[float, ...]) -> Iterator[str]:
    """Of the training rows in their order, which are the stream where there is no other."""
    del lengthscales
    assert isinstance(file.method, StreamSettings)  # noqa: S101  # by its name
    yield from left_open.of_functions(job)
    train = job.data.train
    order = np.argsort(train.row_numbers)[:_MOST_LOOKED_AT]
    target = np.asarray(job.targets_train, dtype=np.float64)
    columns = np.column_stack([train.x, target])[order]
    wanted = rows_of_round(file.method.batch_rows, job.file.policy.min_rows)
    fewest = fewest_of(job)
    found = sizes(columns, wanted, fewest, most_rows(job, fewest))
    nums = [num for num, _ in found] or [wanted]
    usual = int(np.median(np.repeat(nums, nums)))  # of most rows, for many small rounds hold few
    if usual < GROWN * wanted:
        return
    grown = [places for num, places in found if num >= GROWN * wanted]
    blamed = Counter(place for places in grown for place in places)
    names = [*job.schema.features, job.schema.target]
    shown = listed([repr(names[j]) for j, num in blamed.most_common() if 2 * num >= len(grown)] or ["several in turn"])
    yield (
        f"a round of the stream would have about {usual:,} rows here, and not {wanted:,}: of fewer, some that are "
        f"fewer than policy.min_rows stand out in columns, or share their values: {shown}. What all clients learn "
        "together moves once a round; leave these columns out, or set policy.sparse_columns or policy.few_values = "
        '"allow"'
    )


def sizes(columns: Floats, wanted: int, fewest: Fewest, most: int) -> list[tuple[int, list[int]]]:
    """Rows of each round, and the columns for which it was the last to grow; without the rows that are left over.

    Args:
        columns: Rows in their order, the target last, (n, P + 1).
        wanted: Rows of a round.
        fewest: Fewest rows that may stand out in one.
        most: Rows to which a round grows.
    """
    found, start = [], 0
    while start + wanted <= len(columns):
        num, last = wanted, np.zeros(columns.shape[1], dtype=np.bool_)
        while num < most and (few := fewest.blames(columns[start : start + num])).any():
            num, last = min(num + fewest.most, most), few
        if start + num > len(columns):
            break
        found.append((num, np.flatnonzero(last).tolist()))
        start += num
    return found


FORESIGHT: dict[str, Foresight] = {
    name: _online for name, method in METHODS.items() if issubclass(method.settings, StreamSettings)
}
"""By the method's name."""
