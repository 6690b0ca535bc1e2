"""Settings of statistics of columns."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import Field, field_validator

from kernfed.methods.shared_settings import ALL_ROWS, ONE_ROUND
from kernfed.section import MethodSection, Unused

Level = Annotated[float, Field(ge=0, le=1)]


class DescribeSettings(MethodSection):
    """Statistics of columns: counts, moments, quantiles, histograms, levels, correlations; there is no model."""

    unused = (
        *ALL_ROWS,
        ONE_ROUND,
        Unused("seed", "draws nothing"),
        Unused("data.standardise", "takes columns in their own units"),
    )

    name: Literal["describe"]
    quantiles: list[Level] = Field(
        [0.05, 0.25, 0.5, 0.75, 0.95], min_length=1, max_length=99, description="Shares of the rows, ascending."
    )
    num_bins: int = Field(20, ge=2, le=100, description="Cells of a column's histogram.")
    num_levels: int = Field(
        20, ge=0, le=100, description="Most different values of a column of numbers that are counted one by one."
    )
    correlations: bool = Field(True, description="Whether correlations of columns of numbers are told.")

    @field_validator("quantiles")
    @classmethod
    def _ascend(cls, value: list[float]) -> list[float]:
        if any(b <= a for a, b in itertools.pairwise(value)):
            raise ValueError("quantiles are not in ascending order, or one comes twice; write e.g. [0.25, 0.5, 0.75]")
        return value
