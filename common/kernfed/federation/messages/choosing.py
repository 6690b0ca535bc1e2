"""The step by which clients tell how well models predict training rows that they were not made of: sums over folds.

M features, D = M + 1 with the constant before them, T = D (D + 1)/2, F folds, C outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.features.kernels import MOST_SQUARE, RANDOM_KERNELS
from kernfed.features.spec import FeatureSpec
from kernfed.federation.messages.base import Dim, Exact, Kind, NumOutputs, Range, Reply, Request, Rows, Shape, Whole
from kernfed.maths.choosing.by_folds import FoldSums

MOST_FEATURES = 1000
"""Features of a map under which sums over folds are asked for, where the map is random; those of a larger one are
the first of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFoldSums(Reply):
    """Sums over the training rows of each fold; a fold without rows has zeros."""

    diagnostics = ("second_moments", "target_moments", "target_squares")  # bounded by the rows, see `refusals`

    num_rows: Rows
    fold_rows: Annotated[Array, Shape("F"), Whole()]
    """Training rows in each fold, int64; copies of a row lie in one, and rows of a group."""
    second_moments: Annotated[Array, Shape("F", "T"), Exact()]
    """Σ z z' over them, as upper triangles; the constant 1 is before the features."""
    target_moments: Annotated[Array, Shape("F", "D", "C"), Exact()]
    """Σ z y' over them."""
    target_squares: Annotated[Array, Shape("F"), Exact()]
    """Σ |y|² over them."""

    @property
    def sums(self) -> FoldSums:
        """As `kernfed.maths.choosing.by_folds` takes them."""
        return FoldSums(self.fold_rows, self.second_moments, self.target_moments, self.target_squares)

    def contradictions(self, stated: object) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if (self.fold_rows < 0).any() or self.fold_rows.sum() != self.num_rows:
            yield f"its folds have {self.fold_rows.sum()} rows, not {self.num_rows}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFoldSumsRequest(Request[TrainingFoldSums]):
    """Sums of features and targets over folds of the training rows: by them a ridge, or a lengthscale, is chosen."""

    step = "choosing.fold_sums"
    reply = TrainingFoldSums
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    features: FeatureSpec
    """The map, of rows that are scaled as agreed; features are not centred."""
    num_folds: Annotated[int, Dim("F"), Range(1, 100)]
    """Folds F."""
    num_outputs: NumOutputs

    def refusals(self, reply: TrainingFoldSums) -> Iterator[str]:
        """See `Request.refusals`: second moments of no features, or of others."""
        if reply.target_moments.shape[1] != self.features.num_features + 1:
            yield f"its sums are of {reply.target_moments.shape[1] - 1} features, not {self.features.num_features}"
        else:
            squared = MOST_SQUARE if self.features.kernel in RANDOM_KERNELS else float("inf")
            if why := reply.sums.impossible(squared=squared):
                yield why
