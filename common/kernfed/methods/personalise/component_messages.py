"""The steps of personal components, densities and centres of k-means: sums of errors of test rows leave (`metric`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.federation.messages.base import Kind, Range, Reply, Request, Rows, Stated


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsFound(Reply):
    """The client keeps components, or centres, of its own.

    Errors are squared distances of its test rows to their projections, or to the nearest centre.
    """

    diagnostics = ("personal", "local", "pooled", "total")  # nothing is made of them

    num_rows: Rows
    num_test_rows: Rows
    personal: Annotated[float, Range(0)]
    """Sum over test rows, of what the client keeps."""
    local: Annotated[float, Range(0)]
    """Of what follows from its own rows alone."""
    pooled: Annotated[float, Range(0)]
    """Of what follows from all clients' rows alike."""
    total: Annotated[float, Range(0)]
    """Squared distances of the test rows to their mean."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if self.num_test_rows == 0 and max(self.personal, self.local, self.pooled, self.total) > 0.0:
            yield "errors of no test rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindComponentsRequest(Request[ComponentsFound]):
    """Find principal components of the mixture that own rows prefer, from embeddings; keep and measure them."""

    step = "personalise.find_components"
    reply = ComponentsFound
    kinds = (Kind.METRIC,)

    num_components: Annotated[int, Range(1, 1_000_000)]
    """How many, at most as many as columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCentresRequest(Request[ComponentsFound]):
    """Find centres of k-means of the mixture that own rows prefer, from embeddings; keep and measure them."""

    step = "personalise.find_centres"
    reply = ComponentsFound
    kinds = (Kind.METRIC,)

    num_centres: Annotated[int, Range(1, 10_000)]
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityFound(Reply):
    """The client keeps a density of its own. Scores are squared distances of its test rows' features to embeddings."""

    diagnostics = ("personal", "local", "pooled", "total")  # nothing is made of them

    num_rows: Rows
    num_test_rows: Rows
    personal: Annotated[float, Range(0)]
    """Sum over test rows, of the density that the client keeps."""
    local: Annotated[float, Range(0)]
    """Of that of its own rows alone."""
    pooled: Annotated[float, Range(0)]
    """Of that of all clients' rows alike."""
    total: Annotated[float, Range(0)]
    """Of the test rows' own embedding, which no density is below."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if self.num_test_rows == 0 and max(self.personal, self.local, self.pooled, self.total) > 0.0:
            yield "scores of no test rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindDensityRequest(Request[DensityFound]):
    """Find a density of the columns of the mixture that own rows prefer, from embeddings; keep and measure it."""

    step = "personalise.find_density"
    reply = DensityFound
    kinds = (Kind.METRIC,)
