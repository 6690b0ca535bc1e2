"""The result of statistics of columns, pooled and of each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Statistics of a column over the rows of one client, or of all."""

    column: str
    rows: int
    gaps: int | None = field(default=None, metadata=UNLESS_NONE)
    """Rows without a value, as far as clients tell; None: they count none where a job refuses gaps."""
    mean: float | None = field(default=None, metadata=UNLESS_NONE)
    """None, as all below but `levels`, for a target with classes."""
    deviation: float | None = field(default=None, metadata=UNLESS_NONE)
    """Root of the sum of squared deviations from the mean over rows - 1; None also of a single row."""
    smallest: float | None = field(default=None, metadata=UNLESS_NONE)
    """Mean of the smallest values, of as many rows as each client's policy says; of all the least of the clients'."""
    greatest: float | None = field(default=None, metadata=UNLESS_NONE)
    quantiles: tuple[float, ...] = ()
    """One for each of the finding's `levels`."""
    histogram: tuple[int, ...] = ()
    """Rows in each cell of `edges`."""
    edges: tuple[float, ...] = ()
    """Of the cells, one more; the outer cells are open."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Rows by value or class; `others`: of values that not enough rows have. Empty: there are too many values."""


@dataclass(frozen=True, slots=True)
class DescribeFinding(Finding):
    """Statistics of columns."""

    name: ClassVar[str] = "describe"

    levels: tuple[float, ...]
    """Of the quantiles, ascending."""
    pooled: tuple[ColumnFacts, ...]
    """The features in their order, the target last."""
    clients: Mapping[str, tuple[ColumnFacts, ...]] = field(default_factory=dict)
    correlated: tuple[str, ...] = ()
    """Columns of `correlations`."""
    correlations: tuple[tuple[float, ...], ...] = ()
    """Over the rows of `correlations_of`."""
    correlations_of: tuple[str, ...] = ()
    """Clients."""
