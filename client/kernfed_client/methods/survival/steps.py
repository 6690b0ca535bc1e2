"""The client's half of times to an event: rows counted by time, none of fewer rows than the policy says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernfed.arrays import Array, Flags, Floats
from kernfed.errors import WireError
from kernfed.maths.few.neighbours import group_means, group_sizes
from kernfed.methods.survival.messages import SurvivalTimes, SurvivalTimesRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.survival.columns import came, groups_of, times_of


def times(job: LocalJob, request: SurvivalTimesRequest) -> SurvivalTimes:
    """Rows by group and by time, with the event and without.

    Among the rows of a group and an outcome, in the order of their times, each `min_rows` neighbours count at the mean
    of their times. Neighbours are the same whatever grid is asked for. Of a group with fewer rows of one outcome, all
    rows count as of the other.
    """
    grid = np.array(request.grid, dtype=np.float64)
    if (np.diff(grid) <= 0).any():
        raise WireError(f"{request.step}: the grid's times are not in ascending order")
    least, when, died = job.file.policy.min_rows, times_of(job), came(job, request.event)
    names, codes, few = groups_of(job, request.by, least)
    parts = []
    for place in range(len(names)):
        rows = codes == place
        joined = _without_few(died[rows], least)
        few = few or bool((joined != died[rows]).any())
        parts.append(tuple(_counted(when[rows], joined, least, grid)))
    counted = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    return SurvivalTimes(
        num_rows=job.num_rows,
        groups=names,
        group=np.repeat(np.arange(len(names)), [len(part[0]) for part in parts]),
        times=counted[0],
        deaths=counted[1],
        censored=counted[2],
        few_joined=few,
    )


def _without_few(died: Flags, least: int) -> Flags:
    """Outcomes of a group's rows, those of fewer than `least` rows taken as the other one."""
    deaths = int(died.sum())
    if 0 < deaths < least:
        return np.zeros_like(died)
    return np.ones_like(died) if 0 < len(died) - deaths < least else died


def _counted(when: Floats, died: Flags, least: int, grid: Floats) -> Iterator[Array]:
    """Times, rows with the event and rows without, of one group."""
    moved, counts, events = [], [], []
    for outcome in (True, False):
        rows = when[died == outcome]
        if not len(rows):
            continue
        sizes = group_sizes(len(rows), len(rows), least)
        means, event = group_means(rows[:, None], sizes)[:, 0], np.full(len(sizes), outcome)
        if len(grid):
            place = np.searchsorted(grid, means)
            event &= place < len(grid)
            means = grid[np.minimum(place, len(grid) - 1)]
        moved.append(means)
        counts.append(sizes)
        events.append(event)
    times, place = np.unique(np.concatenate(moved), return_inverse=True)
    yield times
    for outcome in (True, False):
        found = np.zeros(len(times), dtype=np.int64)
        np.add.at(found, place, np.concatenate(counts) * (np.concatenate(events) == outcome))
        yield found


STEPS: dict[type[Any], Any] = {SurvivalTimesRequest: times}
"""Steps of this module, by the request that they answer."""
