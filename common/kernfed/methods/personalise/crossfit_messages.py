"""Steps of cross-fitting: every client scores candidates, and takes the one that all of them chose.

What leaves a site: held-out errors per candidate (`metric`). J candidates, G of them FedAvg's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import (
    Dim,
    Kind,
    MaxLength,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
)
from kernfed.methods.personalise.messages import ModelAdopted

Factors = Annotated[tuple[float, ...], MaxLength(64), Range(0)]
Index = Annotated[int, Range(0, 1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateGrid:
    """Parameters from which candidates are made."""

    widths: Factors
    """h: decay of embedding proposals, in units of the expected error of the distance."""
    loss_widths: Factors
    """h: decay of loss proposals, in units of the target's held-out loss."""
    shares: Factors
    """u: how far to lean; 1: as far as the others' effective rows justify. The last must be 1."""
    ridges: Factors
    """rho: ridge over the mean diagonal of the mixture's second moments."""
    num_folds: Annotated[int, Range(0, 1000)]
    """Folds of the target's rows; 0: 10, or 5 from 20 rows on."""
    clusters: Annotated[tuple[int, ...], MaxLength(16), Range(1, 1000)]
    """Numbers of clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDecision:
    """The choice among a stage's candidates by all clients' sums, as indices."""

    pooled: Index
    """Best for all clients together."""
    alternatives: Annotated[tuple[int, ...], MaxLength(64), Range(0, 1_000_000)]
    """The best of each other family, to which a client may deviate; empty: none may."""
    local: Index
    """Best of the local family, by its mean loss."""
    loss: Annotated[float, Range(0)] = 0.0
    """Held-out loss of `pooled`, the mean over clients; what clients go by that have too few rows for one."""


Decisions = Annotated[tuple[StageDecision, ...], MaxLength(8)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossfitScores(Reply):
    """A client's scores of candidates; only sums over clients are used."""

    num_rows: Rows
    num_clients: Annotated[int, Range(1, 1)]
    """1: summed, it says of how many clients a sum is."""
    losses: Annotated[Array, Shape("J")]
    squared_differences: Annotated[Array, Shape("J", "G")]
    variances: Annotated[Array, Shape("J", "G")]

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        for name in ("losses", "squared_differences", "variances"):
            if (getattr(self, name) < 0).any():
                yield f"{name} holds a negative sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossfitRequest(Request[CrossfitScores]):
    """Score the candidates of the stage after `decisions` on held-out rows of this client."""

    step = "personalise.crossfit"
    reply = CrossfitScores
    kinds = (Kind.METRIC,)

    grid: CandidateGrid
    decisions: Decisions
    num_candidates: Annotated[int, Dim("J"), Range(1, 1_000_000)]
    """Candidates J of the stage."""
    num_fedavg: Annotated[int, Dim("G"), Range(1, 1000)]
    """FedAvg candidates G among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRequest(Request[ModelAdopted]):
    """Choose after the last stage; keep the weights and the model that follow from all rows."""

    step = "personalise.adopt"
    reply = ModelAdopted
    kinds = (Kind.SUMMARY,)
    setup = True

    grid: CandidateGrid
    decisions: Decisions
