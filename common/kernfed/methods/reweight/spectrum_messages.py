"""The step that compares the second moments of a client's training rows with those of its test rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, Exact, Kind, Range, Reply, Request, Rows, Shape, Stated
from kernfed.methods.reweight.messages import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Spectra(Reply):
    """Largest eigenvalues of both second moments, falling; zeros where there are fewer."""

    diagnostics = ("train", "test")  # nothing is learned from them

    num_rows: Rows
    num_points: Count
    """Test rows; 0 where they are fewer than the policy lets an aggregate stand for, and `test` is 0."""
    train: Annotated[Array, Shape("E"), Exact()]
    """Of Σ x x'/n over the training rows."""
    test: Annotated[Array, Shape("E"), Exact()]
    """The same of the test rows."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        for found in (self.train, self.test):
            if (found < 0.0).any() or (np.diff(found) > 0.0).any():
                yield "states eigenvalues that do not fall, or are below 0"
        if not self.num_points and self.test.any():
            yield "states eigenvalues of no test rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectraRequest(Request[Spectra]):
    """Eigenvalues of the second moments of training and test rows, as the job's model sees them."""

    step = "reweight.spectra"
    reply = Spectra
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    num_values: Annotated[int, Dim("E"), Range(1, 1000)]
    """Eigenvalues at most."""
    mapped: bool
    """Whether rows are the features of the job's map; else the scaled columns."""
