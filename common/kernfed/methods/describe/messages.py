"""Steps of statistics of columns: each client tells those of its rows. K columns of numbers, G groups of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import (
    Dim,
    Exact,
    Kind,
    MaxLength,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
    Whole,
)
from kernfed.methods.describe.bounds import most_deviation, outermost

NUM_GROUPS = 100
"""Groups that a client tells of a column's sorted rows, at most."""
_ROUNDING = 1e-6
"""Relative difference up to which two ways to compute a number agree."""

NumColumns = Annotated[int, Dim("K"), Range(1, 1_000_000)]
"""Columns of numbers K: the features, and the target of a regression."""
Columns = Annotated[Array, Shape("K"), Exact()]
"""One number a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCounts:
    """Rows of a column by value."""

    values: Annotated[tuple[float, ...], MaxLength(100)]
    """Values that enough rows have, ascending; empty: there are more values than were asked for, or none has enough."""
    counts: Annotated[tuple[int, ...], MaxLength(100), Range(0, 2**53)]
    """Rows of each."""
    others: Annotated[int, Range(0, 2**53)]
    """Rows of all other values; 0 also where these are fewer than the policy says: they count with the commonest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsDescribed(Reply):
    """Statistics of each column over a client's training rows."""

    diagnostics = (
        "mean",
        "deviation",
        "smallest",
        "greatest",
        "group_means",
    )  # to see who differs is what they are for

    num_rows: Rows
    gaps: Annotated[tuple[int, ...], MaxLength(1_000_001), Range(0, 2**53)]
    """Rows of the file without a value, per feature and of the target last; 0 where they are fewer than the policy
    says. Empty: nothing is known of any."""
    class_counts: Annotated[tuple[int, ...], MaxLength(65536), Range(0, 2**53)]
    """Rows per class, in the order that all clients agreed on; empty for regression."""
    mean: Columns
    deviation: Columns
    """Root of the mean squared deviation from the mean."""
    smallest: Columns
    """Mean of the smallest values, of as many rows as the policy says."""
    greatest: Columns
    """Mean of the greatest values."""
    group_rows: Annotated[Array, Shape("G"), Whole()]
    """Rows of each group of neighbours in the order of a column."""
    group_means: Annotated[Array, Shape("G", "K"), Exact()]
    """Their means, ascending per column."""
    value_counts: Annotated[tuple[ValueCounts, ...], MaxLength(1_000_000)]
    """Per column, K of them."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        rows, num_columns = int(self.group_rows.sum()), len(self.mean)
        if rows != self.num_rows:
            yield f"states {self.num_rows} rows, and {rows} in groups"
        if self.class_counts and sum(self.class_counts) != self.num_rows:
            yield f"states {self.num_rows} rows, and {sum(self.class_counts)} of all classes"
        if len(self.value_counts) != num_columns:
            yield f"counts the values of {len(self.value_counts)} columns, and there are {num_columns}"
        for found in self.value_counts:
            if len(found.values) != len(found.counts) or list(found.values) != sorted(set(found.values)):
                yield "counts values that are not in ascending order, or not one number for each"
            elif found.values and sum(found.counts) + found.others != self.num_rows:
                yield f"states {self.num_rows} rows, and {sum(found.counts) + found.others} of all values of a column"
        if (self.deviation < 0).any():
            yield "states a deviation below 0"
        if (self.group_rows < 1).any():
            yield "states a group without rows"
        elif rows == self.num_rows and num_columns:
            yield from self._contradict_order()

    def _contradict_order(self) -> Iterator[str]:
        """Of groups with rows that add up."""
        scale = np.abs(self.group_means).max(axis=0) + np.abs(self.mean)
        near = _ROUNDING * scale
        lines = np.vstack([self.smallest, self.group_means, self.greatest])
        if (np.diff(lines, axis=0) < -near).any():
            yield "states means of sorted rows that are not in their order"
        mean = self.group_rows @ self.group_means / self.num_rows
        if (np.abs(mean - self.mean) > near).any():
            yield "states a mean that is not that of its groups"
        unit = np.where(scale > 0, scale, 1.0)  # in which no square is too small for float64
        between = unit * np.sqrt(self.group_rows @ np.square((self.group_means - mean) / unit) / self.num_rows)
        if (between > self.deviation + near).any():
            yield "states a deviation below that of the means of its groups"
        if (self.deviation > most_deviation(self.group_rows, self.group_means) * (1.0 + _ROUNDING) + near).any():
            yield "states a deviation beyond all that rows with the means of its groups can have"
        least, most = outermost(self.group_rows, self.group_means, self.deviation)
        if (self.smallest < least - near).any() or (self.greatest > most + near).any():
            yield "states a smallest or greatest value that rows with the means of its groups cannot have"
        for found, low, high in zip(self.value_counts, self.smallest - near, self.greatest + near, strict=False):
            if found.values and not low <= found.values[0] <= found.values[-1] <= high:
                yield "counts a value below its smallest ones, or above its greatest"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeColumnsRequest(Request[ColumnsDescribed]):
    """Counts, means, deviations, means of sorted rows, and counts of values, per column."""

    step = "describe.columns"
    reply = ColumnsDescribed
    kinds = (Kind.SUMMARY,)

    num_columns: NumColumns
    num_groups: Annotated[int, Range(1, NUM_GROUPS)]
    """Groups of neighbours, at most."""
    num_levels: Annotated[int, Range(0, 100)]
    """Most different values of a column whose rows are counted by value."""

    def refusals(self, reply: ColumnsDescribed) -> Iterator[str]:
        """See `Request.refusals`."""
        if len(reply.group_rows) > self.num_groups:
            yield f"tells {len(reply.group_rows)} groups, and {self.num_groups} at most were asked for"
        if any(len(found.values) > self.num_levels for found in reply.value_counts):
            yield f"counts more than {self.num_levels} values of a column, the most that were asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsDescribed(Reply):
    """Correlations of columns over a client's training rows."""

    num_rows: Rows
    correlations: Annotated[Array, Shape("K", "K"), Exact()]
    """Between -1 and 1; of a constant column 0, and 1 with itself."""
    few_pairs: Annotated[int, Range(0, 2**53)]
    """Pairs of columns of few values of which fewer rows than the policy says have a combination; their products are
    taken as if none had."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        r = self.correlations
        if (np.abs(r) > 1.0 + _ROUNDING).any():
            yield "states a correlation beyond 1"
        elif len(r) and (np.abs(r - r.T).max() > _ROUNDING or np.abs(np.diag(r) - 1.0).max() > _ROUNDING):
            yield "states correlations that are not symmetric, or of a column with itself not 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribePairsRequest(Request[PairsDescribed]):
    """Correlations of columns."""

    step = "describe.pairs"
    reply = PairsDescribed
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    num_columns: NumColumns
