"""Agreement on the scales of the columns: from each client's moments to one mean and deviation for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import InvalidReplyError
from kernfed.federation.messages.data import DataDescription
from kernfed.jobs.job_file import DataSection
from kernfed.maths.statistics import Moments, constant_columns, pool_moments, pooled_deviation
from kernfed.wording import listed
from kernfed_server.jobs.run import Run


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
        InvalidReplyError: A sum of squares is negative, or a list has another length than there are columns.
    """
    if (reply.sum_squares < 0).any():
        raise InvalidReplyError("states a negative sum of squares")
    for name, values in (("deviations", reply.deviation), ("rests of means", reply.mean_rest)):
        if len(values) not in (0, len(reply.mean)):
            raise InvalidReplyError(f"states {len(values)} {name} for {len(reply.mean)} columns")


def moments_of(reply: StatedMoments) -> Moments:
    """The moments that a client states; one of an earlier release states sums of squares alone."""
    mean = reply.mean.astype(np.float64)
    if not reply.deviation:
        return Moments.of_squares(reply.num_rows, mean, reply.sum_squares.astype(np.float64))
    rest = np.array(reply.mean_rest) if reply.mean_rest else np.zeros_like(mean)
    return Moments(reply.num_rows, mean, np.array(reply.deviation), rest)


def agree_scales(data: DataSection, described: Sequence[DataDescription], run: Run) -> tuple[Array, Array]:
    """Mean and deviation of each feature column over all clients' training rows, (P,) each."""
    num_columns = len(data.features)
    if not data.standardise:
        return np.zeros(num_columns), np.ones(num_columns)
    pooled = pool_moments([moments_of(d) for d in described])
    constant = [name for name, flat in zip(data.features, constant_columns(pooled), strict=True) if flat]
    if constant:
        run.note(f"columns that are the same everywhere and tell nothing: {listed(constant)}")
    return pooled.mean, pooled_deviation(pooled)
