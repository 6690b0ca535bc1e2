"""Steps of personalisation up to each client's weights: likeness of clients, and everyone's scores of a model.

What leaves a site: moments of columns (`summary`); the mean embedding and its error (`mean_embedding`); with
`weights = "crossfit"` or the exact trainer its normal equations (`sufficient_statistic`) and held-out errors per
candidate (`metric`); its weights, where it may tell them (`collaboration_weights`). Embeddings and normal equations go
on to every client of the job. Z embedded columns, M embedding features, Q inputs of the ridge model, C outputs, B
clients, J candidates, G of them FedAvg's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.federation.messages.base import (
    Dim,
    Kind,
    MaxLength,
    Name,
    Names,
    NumOutputs,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
    Whole,
)
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.maths.triangles import unpack

NumClients = Annotated[int, Dim("B"), Range(1, 100_000)]

_ROUNDING = 1e-4
"""Relative error of sums that travelled in float32, with room to spare."""


def _impossible_products(gram: Floats, moment: Array, square: float) -> Iterator[str]:
    """Say which second moments no rows have: |a'b|² is at most |a|² |b|² of any two columns a and b."""
    diagonal = np.diagonal(gram)
    if (diagonal < 0).any():
        yield "a mean square of an input is negative"
        return
    size, most = np.sqrt(diagonal), 1.0 + _ROUNDING
    if (np.abs(gram) > most * np.outer(size, size)).any():
        yield "products of two inputs are larger than their squares allow"
    if (np.abs(moment) > most * np.sqrt(square) * size[:, None]).any():
        yield "products of inputs and targets are larger than their squares allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Reply):
    """A client's normal equations."""

    directions = ("moment",)

    num_rows: Rows
    gram: Annotated[Array, Shape("T")]
    """Upper triangle of X'X/n, row by row."""
    moment: Annotated[Array, Shape("Q", "C")]
    """X'Y/n."""
    square: Annotated[float, Range(0)]
    """Mean of |y|²."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        yield from _impossible_products(unpack(self.gram, len(self.moment)), self.moment, self.square)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsRequest(Request[Statistics]):
    """Second moments of the ridge model's inputs (the constant, if there is one, then features) and targets."""

    step = "personalise.statistics"
    reply = Statistics
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    num_inputs: Annotated[int, Dim("Q"), Range(1, 20_000_000)]
    """Inputs Q: the constant, if there is an intercept, then the features."""
    num_outputs: NumOutputs
    num_packed: Annotated[int, Dim("T"), Range(1, 2**53)]
    """Q (Q + 1)/2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor(Reply):
    """A client's normal equations, the matrix as a factor of no more rows than the client has."""

    directions = ("moment",)

    num_rows: Rows
    factor: Annotated[Array, Shape("F", "Q")]
    """R with R'R = X'X/n; F is the smaller of n and Q."""
    moment: Annotated[Array, Shape("Q", "C")]
    """X'Y/n."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if len(self.factor) > min(max(self.num_rows, 1), len(self.moment)):
            yield f"a factor of {len(self.factor)} rows for {self.num_rows} rows of data"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRequest(Request[Factor]):
    """Second moments of many inputs, from which the coordinator finds the directions that all clients share."""

    step = "personalise.factor"
    reply = Factor
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    num_inputs: Annotated[int, Dim("Q"), Range(1, 20_000_000)]
    """Inputs Q: the constant, if there is an intercept, then the features."""
    num_outputs: NumOutputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRequest(Request[Statistics]):
    """Go on with the features in a few directions; normal equations of the constant, if there is one, and of these."""

    step = "personalise.project"
    reply = Statistics
    kinds = (Kind.SUFFICIENT_STATISTIC,)
    setup = True

    basis: Annotated[Array, Shape("P", "R")]
    """Orthonormal directions of the features."""
    num_inputs: Annotated[int, Dim("Q"), Range(1, 20_000_000)]
    """Inputs Q: the constant, if there is an intercept, then the R directions."""
    num_outputs: NumOutputs
    num_packed: Annotated[int, Dim("T"), Range(1, 2**53)]
    """Q (Q + 1)/2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """Directions of the features in which ridge models lie."""

    basis: Annotated[Array, Shape("P", "R")]
    """Orthonormal, a column each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """Clusters of all clients, found once for everyone."""

    num_clusters: Annotated[int, Range(1, 1000)]
    """Number K of clusters."""
    labels: Annotated[Array, Shape("B"), Whole()]
    """Cluster of each client, from 0; int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared(Reply):
    """The client holds what all clients have shared."""

    num_rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRequest(Request[Shared]):
    """Give the client the data that all clients have shared, in one order. Without normal equations T and Q are 0."""

    step = "personalise.share"
    reply = Shared
    kinds = (Kind.SUMMARY,)
    setup = True
    young = ("num_embedded",)

    clients: Names
    """Names of the clients, sorted; the order of all else."""
    num_rows: Annotated[Array, Shape("B")]
    means: Annotated[Array, Shape("B", "M")]
    traces: Annotated[Array, Shape("B")]
    grams: Annotated[Array, Shape("B", "T")]
    moments: Annotated[Array, Shape("B", "Q", "C")]
    squares: Annotated[Array, Shape("B")]
    withheld: Names = ()
    """Those of the clients whose normal equations are not among these: their parts are 0, and nobody learns from them.
    Such a client uses its own rows for its own part."""
    clusterings: Annotated[tuple[Clustering, ...], MaxLength(16)] = ()
    """Clusters of many clients; empty: each client clusters the others itself."""
    directions: Annotated[tuple[Directions, ...], MaxLength(16)] = ()
    """Those in which the normal equations are, the last one counts; empty: these are of all features."""
    num_embedded: Annotated[tuple[int, ...], MaxLength(100_000), Range(0, 2**53)] = ()
    """Rows that each embedding is of, B of them; empty: the training rows alone."""

    @property
    def rows_embedded(self) -> Floats:
        """Rows that each embedding is of, (B,)."""
        return np.asarray(self.num_embedded or self.num_rows, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSolved(Reply):
    """The client has solved for its weights and keeps them."""

    diagnostics = ("gap",)

    num_rows: Rows
    gap: Annotated[float, Range(0)]
    """Of the weights: at least the distance of the objective to its optimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveWeightsRequest(Request[WeightsSolved]):
    """Q-aggregation with this client as the target."""

    step = "personalise.solve_weights"
    reply = WeightsSolved
    kinds = (Kind.SUMMARY,)
    setup = True
    young = ("theorem_q", "theorem_p", "steps", "step_factor")

    exact: bool
    """The optimum; else Algorithm 3 as printed, with its number of steps."""
    c_q: Annotated[float, Range(0)]
    """Weight C_Q of the penalty on the spread."""
    c_p: Annotated[float, Range(0)]
    """Weight C_P of the penalty on the distance."""
    bound: Annotated[float, Range(0)]
    """Bound M of the features' norm."""
    steps: Annotated[int, Range(0, 1_000_000)] = 0
    """Steps T of Algorithm 3; 0: as printed."""
    step_factor: Annotated[float, Range(0, 1)] = 0.0
    """c of its step; 0: as printed."""
    theorem_q: bool = False
    """Whether C_Q is 2 log(B n), n the client's rows, in place of `c_q`."""
    theorem_p: bool = False
    """Whether C_P is that in place of `c_p`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdopted(Reply):
    """The client has a personal model and keeps it."""

    num_rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveModelRequest(Request[ModelAdopted]):
    """Solve the ridge problem on everyone's normal equations, mixed with this client's weights; keep the model."""

    step = "personalise.solve_model"
    reply = ModelAdopted
    kinds = (Kind.SUMMARY,)
    setup = True

    ridge: Annotated[float, Range(1e-300)]
    """Ridge λ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollaborationWeights(Reply):
    """A client's weights over all clients."""

    num_rows: Rows
    weights: Annotated[Array, Shape("B")]
    """On the simplex."""
    choice: Name
    """The way in which they were found, in words; empty where there was no choice."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        outside = (self.weights < -1e-9).any() or (self.weights > 1.0 + 1e-5).any()
        if outside or abs(float(self.weights.sum()) - 1.0) > 1e-5:
            yield "weights that are not on the simplex"


@dataclass(frozen=True, slots=True, kw_only=True)
class TellWeightsRequest(Request[CollaborationWeights]):
    """Tell the weights that the client has found."""

    step = "personalise.tell_weights"
    reply = CollaborationWeights
    kinds = (Kind.COLLABORATION_WEIGHTS,)

    num_clients: NumClients
    """Clients B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAllowed(Reply):
    """What this client has shared may be kept with the job."""

    num_rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowKeepingRequest(Request[KeepAllowed]):
    """Ask whether embedding and normal equations may stay with the job's artifacts, for clients that join later."""

    step = "personalise.allow_keeping"
    reply = KeepAllowed
    kinds = (Kind.STORED_STATISTIC,)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatePersonalRequest(Request[Evaluation]):
    """Measure the client's personal model on its own test rows."""

    step = "personalise.evaluate"
    reply = Evaluation
    kinds = (Kind.METRIC,)
