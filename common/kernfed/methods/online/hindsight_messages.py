"""The question after the last round: how good one function would have been on all rows that were learned.

N kernels with F features each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, Exact, Kind, Range, Reply, Request, Rows, Shape, Stated
from kernfed.maths.triangles import packed_size
from kernfed.methods.online.stream_step import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight(Reply):
    """Sums over all rows that the client has learned."""

    diagnostics = ("gram", "moment", "square")  # nothing is learned from them

    num_rows: Rows
    num_samples: Count
    """Rows behind the sums; 0: the client has not kept them, and all numbers are 0."""
    gram: Annotated[Array, Shape("N", "P"), Exact()]
    """Σ z_i z_i' of each kernel as its triangle; P is F (F + 1)/2."""
    moment: Annotated[Array, Shape("N", "F"), Exact()]
    """Σ y z_i of each kernel, with targets as the learner sees them."""
    square: Annotated[float, Range(0)]
    """Σ y²."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`: no rows have no sums, and |Σ y z|² is at most Σ y² Σ |z|²."""
        del stated
        if not self.num_samples and (self.square or np.any(self.gram) or np.any(self.moment)):
            yield "states sums over no rows"
        size = np.square(self.moment).sum(axis=1).max(initial=0.0)
        if size > 2.0 * self.num_samples * self.square * (1.0 + 1e-6):  # features have norm 1, and a constant 1
            yield f"states products of targets and features of size {size:.3g}, which its rows cannot have"


@dataclass(frozen=True, slots=True, kw_only=True)
class HindsightRequest(Request[Hindsight]):
    """Sums over all rows that were learned, from which the best function of each kernel in hindsight follows."""

    step = "online.hindsight"
    reply = Hindsight
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    num_kernels: Annotated[int, Dim("N"), Range(1, 256)]
    """Kernels N."""
    num_features: Annotated[int, Dim("F"), Range(1, 100_000)]
    """Features F of each kernel."""

    def refusals(self, reply: Hindsight) -> Iterator[str]:
        """See `Request.refusals`."""
        if reply.gram.shape[1] != packed_size(self.num_features):
            yield f"states {reply.gram.shape[1]} products of {self.num_features} features"
