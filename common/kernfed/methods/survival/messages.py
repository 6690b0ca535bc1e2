"""Steps on times to an event: each client tells how many of its rows had the event, or were last seen, at which time.

T times over all groups, each with the rows of one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import (
    Exact,
    Kind,
    MaxLength,
    Name,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
    Whole,
)
from kernfed.wording import is_class_name

MOST_GROUPS = 50
"""Groups of rows in one job."""
MOST_TIMES = 10_000
"""Times of a grid."""

Counts = Annotated[Array, Shape("T"), Whole()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalTimes(Reply):
    """Rows by group, time, and whether the event came."""

    diagnostics = ("times",)

    num_rows: Rows
    groups: Annotated[tuple[Name, ...], MaxLength(MOST_GROUPS)]
    """Names of the groups that there are here."""
    group: Counts
    """Place in `groups`, ascending."""
    times: Annotated[Array, Shape("T"), Exact()]
    """Of a group ascending; each is a mean over as many neighbouring rows as the policy says."""
    deaths: Counts
    """Rows of the group in which the event came then."""
    censored: Counts
    """Rows of the group that were last seen then, without the event."""
    few_joined: bool
    """Whether fewer rows than the policy says are counted as others: of a group with the largest one, of an outcome in
    a group with the other outcome."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        rows = int(self.deaths.sum() + self.censored.sum())
        if rows != self.num_rows:
            yield f"states {self.num_rows} rows, and {rows} at all times"
        if len(set(self.groups)) != len(self.groups) or not all(map(is_class_name, self.groups)):
            yield "names a group twice, or one that no client's reader lets through"
        if len(self.group) and int(self.group.max()) >= len(self.groups):
            yield "states times of a group that it does not name"
        between, within = np.diff(self.group.astype(np.int64)), np.diff(self.times)
        if (between < 0).any() or ((between == 0) & ~(within > 0)).any():
            yield "states times that are not in ascending order, by group"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalTimesRequest(Request[SurvivalTimes]):
    """Count rows by group and by time, with the event and without."""

    step = "survival.times"
    reply = SurvivalTimes
    kinds = (Kind.SUMMARY,)

    event: Name
    """Column that says whether the event came; empty: it came in each row."""
    by: Name
    """Column of the groups; empty: all rows are one."""
    grid: Annotated[tuple[float, ...], MaxLength(MOST_TIMES)]
    """Times, ascending, to which others are moved up; empty: they are told as they are."""

    def refusals(self, reply: SurvivalTimes) -> Iterator[str]:
        """See `Request.refusals`."""
        if self.grid and not np.isin(reply.times, self.grid).all():
            yield "states times that are not of the grid"
