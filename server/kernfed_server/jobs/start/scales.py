"""Agreement on the scales of the columns: from each client's moments to one mean and deviation for all."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kernfed.arrays import GREATEST, Array, Flags
from kernfed.errors import InvalidReplyError
from kernfed.features.kernels import RANDOM_KERNELS
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.data import DataDescription, LearningTask, MeanEmbedding
from kernfed.jobs.job_sections import DataSection
from kernfed.maths.clipping import BOUND
from kernfed.maths.statistics import Moments, constant_columns, pool_moments, pooled_deviation
from kernfed.maths.tasks import TASKS
from kernfed.wording import listed
from kernfed_server.jobs.run import Run

_ROUNDING = 1e-6
_SAME_MEAN = 1e-3
"""Relative difference up to which two means of the same targets, or squares of the same rows, agree."""
_REST = 1e-15
"""Of a mean: more than its last place."""
_TINY = 1e-250
"""Squares below it may have left the range of numbers."""
TOO_FAR = 30.0
"""A client stands apart beyond so many deviations of all the others."""

FEWEST_CLIENTS = 3
"""With two nobody can tell which of them stands apart."""

APART_WORDS = f": its mean or deviation there is beyond {TOO_FAR:g} deviations of all the others; check units and rows"
FAR_WORDS = ", and is taken at the farthest of the others; check the rows with `kernfed-client check-data`"


class StatedMoments(Protocol):
    """A reply that states moments of columns."""

    @property
    def num_rows(self) -> int:
        """Training rows."""

    @property
    def mean(self) -> Array:
        """Shape (P,)."""

    @property
    def sum_squares(self) -> Array:
        """Of deviations from the mean, shape (P,)."""

    @property
    def deviation(self) -> tuple[float, ...]:
        """Root of the mean squared deviation; empty where `sum_squares` tells it."""

    @property
    def mean_rest(self) -> tuple[float, ...]:
        """What the mean lost to rounding; empty where nothing is known of it."""


def check_moments(reply: StatedMoments) -> None:
    """Refuse moments that no rows have.

    Raises:
        InvalidReplyError: A sum of squares is negative or not that of the deviation, the rest of a mean is no rounding
            of it, or a list has another length than there are columns.
    """
    if (reply.sum_squares < 0).any():
        raise InvalidReplyError("states a negative sum of squares")
    for name, values in (("deviations", reply.deviation), ("rests of means", reply.mean_rest)):
        if len(values) not in (0, len(reply.mean)):
            raise InvalidReplyError(f"states {len(values)} {name} for {len(reply.mean)} columns")
    if reply.mean_rest and (np.abs(reply.mean_rest) > _REST * np.abs(reply.mean)).any():
        raise InvalidReplyError("states what a mean lost to rounding, and more than rounding takes")
    if reply.deviation:
        with np.errstate(over="ignore", under="ignore"):
            squares = np.square(reply.deviation) * reply.num_rows
        told = (reply.sum_squares > _TINY) | (squares > _TINY)
        apart = np.abs(reply.sum_squares - squares) > _SAME_MEAN * np.maximum(reply.sum_squares, squares)
        if (told & apart & (squares < GREATEST)).any():
            raise InvalidReplyError("states a deviation, and a sum of squares that is not of it")


def check_embedding(
    spec: FeatureSpec, task: LearningTask, described: Mapping[str, DataDescription], client: str, reply: MeanEmbedding
) -> None:
    """Refuse means that no rows have: random features of a row have norm √2 at most, and classes are shares.

    Raises:
        InvalidReplyError: A mean is larger, or that of a regression's target is another one than the client described.
    """
    if spec.kernel in RANDOM_KERNELS and float(np.linalg.norm(reply.feature_mean)) > math.sqrt(2) + _ROUNDING:
        raise InvalidReplyError("states a mean of features larger than any row's features are")
    if TASKS[task].has_classes and (reply.target_mean.min() < -_ROUNDING or reply.target_mean.max() > 1 + _ROUNDING):
        raise InvalidReplyError("states a share of a class that is none")
    stated = described[client]
    if not TASKS[task].has_classes and stated.target_deviation > 0:  # an earlier release tells none
        other = float(reply.target_mean[0]) - stated.target_mean
        if abs(other) > _SAME_MEAN * (abs(stated.target_mean) + stated.target_deviation):
            raise InvalidReplyError(
                f"states {reply.target_mean[0]:.6g} as the mean of its targets, and {stated.target_mean:.6g} before"
            )


def far_targets(
    data: DataSection, described: Mapping[str, DataDescription], embedded: Mapping[str, MeanEmbedding]
) -> dict[str, MeanEmbedding]:
    """Clients that stand apart in a regression's target (`stands_apart`), with the mean of the others in its place.

    With `scales = "clipped"`, as for the scales of the columns.
    """
    targets = {
        client: Moments(d.num_rows, np.array([d.target_mean]), np.array([d.target_deviation]), np.zeros(1))
        for client, d in sorted(described.items())
        if client in embedded
    }
    if data.scales != "clipped" or TASKS[data.task].has_classes or not all(m.deviation > 0 for m in targets.values()):
        return {}
    return {
        client: replace(embedded[client], target_mean=apart.without(targets[client]).mean)
        for client, apart in stands_apart(targets).items()
        if apart.columns.any()
    }


def target_deviation(described: Mapping[str, DataDescription]) -> float:
    """Deviation of a regression's targets at a client, the median over clients whose targets vary; 0: at none.

    Of two clients it is the smaller one, and of four the second: so one of two does not set the unit of both, if its
    own is too large.
    """
    stated = [d.target_deviation for d in described.values() if d.target_deviation > 0]
    return statistics.median_low(stated) if stated else 0.0


def moments_of(reply: StatedMoments) -> Moments:
    """The moments that a client states; one of an earlier release states sums of squares alone."""
    mean = reply.mean.astype(np.float64)
    if not reply.deviation:
        return Moments.of_squares(reply.num_rows, mean, reply.sum_squares.astype(np.float64))
    rest = np.array(reply.mean_rest) if reply.mean_rest else np.zeros_like(mean)
    return Moments(reply.num_rows, mean, np.array(reply.deviation), rest)


@dataclass(frozen=True, slots=True)
class Scales:
    """What all clients subtract from their columns and divide them by."""

    mean: Array
    """Shape (P,)."""
    deviation: Array
    """Shape (P,)."""
    bounds: tuple[float, ...]
    """Of the standardised training rows, empty where there is none."""
    stated: tuple[Moments, ...]
    """Of the clients, without what stands apart."""

    def within(self) -> Array:
        """Part of each column's deviation that lies within clients, from 0 to 1, shape (P,); 1 of a constant column."""
        pooled = pool_moments(self.stated)
        whole = pooled_deviation(pooled)
        squares = np.zeros_like(whole)
        for part in self.stated:
            squares += part.num_rows / pooled.num_rows * np.square(part.deviation / whole)
        return np.where(constant_columns(pooled), 1.0, np.minimum(np.sqrt(squares), 1.0))


def agree_scales(
    data: DataSection, described: Mapping[str, DataDescription], counted: Mapping[str, float], run: Run
) -> Scales:
    """Agree on the scale of each feature column, over all clients' training rows, of which each client has so many.

    With `scales = "clipped"` a client that stands apart in a column (`stands_apart`) has no say in its scale, and rows
    there are bounded.
    """
    num_columns = len(data.features)
    stated = {client: replace(moments_of(d), num_rows=counted[client]) for client, d in sorted(described.items())}
    if not data.standardise:
        return Scales(np.zeros(num_columns), np.ones(num_columns), (), tuple(stated.values()))
    bounds: tuple[float, ...] = ()
    if data.scales == "clipped":
        apart = stands_apart(stated)
        found = np.any([a.columns for a in apart.values()], axis=0)
        bounds = tuple(np.where(found, BOUND, 0.0).tolist()) if found.any() else ()
        stated = {client: apart[client].without(m) for client, m in stated.items()}
        for client in stated:
            note_columns(run, data, apart[client].columns, f"{client} has no say in the scale of", APART_WORDS)
            note_far_rows(run, data, client, described[client].far_rows)
    pooled = pool_moments(list(stated.values()))
    constant = [name for name, flat in zip(data.features, constant_columns(pooled), strict=True) if flat]
    if constant:
        run.note(f"columns that are the same everywhere and tell nothing: {listed(constant)}")
    return Scales(pooled.mean, pooled_deviation(pooled), bounds, tuple(stated.values()))


def pooled_mean(described: Mapping[str, DataDescription], counted: Mapping[str, float]) -> Array:
    """Mean of each feature column over all clients' training rows, of which each has so many, shape (P,)."""
    return pool_moments([replace(moments_of(d), num_rows=counted[c]) for c, d in sorted(described.items())]).mean


@dataclass(frozen=True, slots=True)
class Apart:
    """Columns in which a client stands apart from all others."""

    columns: Flags
    """Shape (P,)."""
    others: Moments | None
    """Pooled moments of the others; None where there are fewer than two."""

    def without(self, own: Moments) -> Moments:
        """The client's moments with those of the others where it stands apart, which leaves the pooled ones alone."""
        if self.others is None or not self.columns.any():
            return own
        put, o = self.columns, self.others
        mean, deviation = np.where(put, o.mean, own.mean), np.where(put, o.deviation, own.deviation)
        return Moments(own.num_rows, mean, deviation, np.where(put, o.rest, own.rest))


def stands_apart(stated: Mapping[str, Moments]) -> dict[str, Apart]:
    """Find the columns in which one client's mean or deviation is beyond `TOO_FAR` deviations of all the others.

    Only a client with at most half of the rows can stand apart, and only where there are at least two others.
    """
    names, parts = list(stated), list(stated.values())
    num_rows = sum(part.num_rows for part in parts)
    none = np.zeros(len(parts[0].mean), np.bool_)
    if len(parts) < FEWEST_CLIENTS:
        return {name: Apart(none, None) for name in names}
    before = list(itertools.accumulate(parts, lambda a, b: pool_moments([a, b])))
    behind = list(itertools.accumulate(reversed(parts), lambda a, b: pool_moments([a, b])))[::-1]
    found = {}
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        others = pool_moments([*before[max(i - 1, 0) : i], *behind[i + 1 : i + 2]])
        limit = TOO_FAR * others.deviation
        beyond = (np.abs(part.mean - others.mean) > limit) | (part.deviation > limit)
        found[name] = Apart(beyond & ~constant_columns(others) if 2 * part.num_rows <= num_rows else none, others)
    return found


def note_columns(run: Run, data: DataSection, columns: Flags, begin: str, end: str) -> None:
    """Note the names of columns that are set, if any."""
    if columns.any():
        run.note(f"{begin} {listed([data.features[int(j)] for j in np.flatnonzero(columns)])}{end}")


def note_far_rows(run: Run, data: DataSection, client: str, far_rows: Sequence[int]) -> None:
    """Name a client whose rows stand far out, with the columns."""
    columns = np.array(far_rows, dtype=np.int64) > 0
    if len(columns) == len(data.features):
        most = max(far_rows)
        begin = f"{client}: up to {most} training rows stand far out" if most > 1 else f"{client}: a row stands far out"
        note_columns(run, data, columns, f"{begin} in", FAR_WORDS)
