"""From what each client tells of its columns to statistics of the rows of all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats
from kernfed.federation.messages.data import DataSchema
from kernfed.maths.statistics import Moments, constant_columns, pool_moments
from kernfed.maths.tasks import TASKS
from kernfed.methods.describe.finding import ColumnFacts, DescribeFinding
from kernfed.methods.describe.messages import ColumnsDescribed, PairsDescribed
from kernfed.methods.describe.ranks import Groups


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a job."""

    numbers: tuple[str, ...]
    """The features, and the target of a regression."""
    target: str
    classes: tuple[str, ...]
    """Of the target; empty for a regression."""

    @classmethod
    def of(cls, schema: DataSchema, classes: Sequence[str]) -> Columns:
        """Those of a schema, with the classes that all clients agreed on."""
        numbers = schema.features if TASKS[schema.task].has_classes else (*schema.features, schema.target)
        return cls(numbers, schema.target, tuple(classes))

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, the target last."""
        return (*self.numbers, self.target) if self.classes else self.numbers

    def refusing(self, client: str, reply: ColumnsDescribed) -> Iterator[str]:
        """Why a reply cannot be of these columns."""
        del client
        if len(reply.gaps) not in (0, len(self.names)):
            yield f"counts gaps of {len(reply.gaps)} columns, and there are {len(self.names)}"
        if len(reply.class_counts) != len(self.classes):
            yield f"counts rows of {len(reply.class_counts)} classes, and there are {len(self.classes)}"


def described(
    columns: Columns,
    told: Mapping[str, ColumnsDescribed],
    pairs: Mapping[str, PairsDescribed],
    levels: Sequence[float],
    num_bins: int,
) -> DescribeFinding:
    """The finding.

    Args:
        columns: Of the job.
        told: By client; one at least.
        pairs: Of those that told correlations.
        levels: Of quantiles, ascending.
        num_bins: Cells of a histogram.
    """
    replies = {client: told[client] for client in sorted(told)}
    edges = [_edges([r.group_means[:, j] for r in replies.values()], num_bins) for j in range(len(columns.numbers))]
    facts = {client: _facts(columns, [reply], edges, levels) for client, reply in replies.items()}
    correlations = _correlations([(replies[c], pairs[c]) for c in sorted(pairs)])
    return DescribeFinding(
        levels=tuple(levels),
        pooled=_facts(columns, list(replies.values()), edges, levels),
        clients=facts,
        correlated=columns.numbers if pairs else (),
        correlations=tuple(tuple(row) for row in correlations.tolist()),
        correlations_of=tuple(sorted(pairs)),
    )


def _edges(means: Sequence[Floats], num_bins: int) -> Floats:
    """Edges of equal cells between the least and the greatest mean of a group, (B + 1,); of one value, around it."""
    low, high = min(float(m[0]) for m in means), max(float(m[-1]) for m in means)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, num_bins + 1)


def _facts(
    columns: Columns, replies: Sequence[ColumnsDescribed], edges: Sequence[Floats], levels: Sequence[float]
) -> tuple[ColumnFacts, ...]:
    """Of the rows of one client, or of several."""
    rows = sum(reply.num_rows for reply in replies)
    pooled = pool_moments([_moments(reply) for reply in replies])
    deviation = pooled.deviation * math.sqrt(rows / (rows - 1)) if rows > 1 else None
    told_gaps = [np.array(reply.gaps) for reply in replies if reply.gaps]
    gaps = np.sum(told_gaps, axis=0) if told_gaps else None
    found = []
    for j, name in enumerate(columns.numbers):
        groups = Groups.joined([_groups(reply, j) for reply in replies])
        found.append(
            ColumnFacts(
                column=name,
                rows=rows,
                gaps=None if gaps is None else int(gaps[j]),
                mean=float(pooled.mean[j]),
                deviation=None if deviation is None else float(deviation[j]),
                smallest=min(float(r.smallest[j]) for r in replies),
                greatest=max(float(r.greatest[j]) for r in replies),
                quantiles=tuple(groups.quantiles(levels).tolist()),
                histogram=tuple(groups.histogram(edges[j]).tolist()),
                edges=tuple(edges[j].tolist()),
                values=_values(replies, j),
            )
        )
    if columns.classes:
        counts = np.sum([reply.class_counts for reply in replies], axis=0)
        by_class = {name: int(count) for name, count in zip(columns.classes, counts, strict=True)}
        found.append(ColumnFacts(columns.target, rows, None if gaps is None else int(gaps[-1]), values=by_class))
    return tuple(found)


def _groups(reply: ColumnsDescribed, j: int) -> Groups:
    """Of a client's column: by value where all of its rows are counted so, else neighbours."""
    counted = reply.value_counts[j]
    if counted.values and not counted.others:
        return Groups.of_values(counted.values, counted.counts)
    return Groups.of_neighbours(reply.group_means[:, j].astype(np.float64), reply.group_rows.astype(np.int64))


def _values(replies: Sequence[ColumnsDescribed], j: int) -> dict[str, int]:
    """Rows by value; none where a client counts none, for there are too many values."""
    if not all(reply.value_counts[j].values for reply in replies):
        return {}
    counts: dict[float, int] = {}
    for found in (reply.value_counts[j] for reply in replies):
        for value, count in zip(found.values, found.counts, strict=True):
            counts[value] = counts.get(value, 0) + count
    others = sum(reply.value_counts[j].others for reply in replies)
    named = {f"{value:.15g}": counts[value] for value in sorted(counts)}
    return named | ({"others": others} if others else {})


def _moments(reply: ColumnsDescribed) -> Moments:
    mean = reply.mean.astype(np.float64)
    return Moments(reply.num_rows, mean, reply.deviation.astype(np.float64), np.zeros_like(mean))


def _correlations(told: Sequence[tuple[ColumnsDescribed, PairsDescribed]]) -> Floats:
    """Of the rows of all clients, (K, K), from those of each; of a constant column 0, and 1 with itself.

    By the law of total covariance: within clients, and between their means.
    """
    if not told:
        return np.zeros((0, 0))
    pooled = pool_moments([_moments(columns) for columns, _ in told])
    scale = np.where(constant_columns(pooled), np.inf, pooled.deviation)
    found = np.zeros((len(scale), len(scale)))
    for columns, pairs in told:
        share = columns.num_rows / pooled.num_rows
        within, between = columns.deviation / scale, (columns.mean - pooled.mean) / scale
        found += share * (pairs.correlations * np.outer(within, within) + np.outer(between, between))
    np.fill_diagonal(found, 1.0)
    return np.clip(found, -1.0, 1.0)
