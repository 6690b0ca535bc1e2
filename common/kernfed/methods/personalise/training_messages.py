"""Steps that train the models of all targets which weigh a client, in one computation at that client.

N models of targets; M features, and the constant 1 before them where models have intercepts of their own; C outputs; P
parameters of a network; J candidates. Models of other clients pass through a client as numbers that it steps on; which
target a model is of, it is not told, but of those that are judged it is told which are its own. A target's own model
goes to its client at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import (
    Dim,
    Exact,
    Kind,
    MaxLength,
    Name,
    NumOutputs,
    Range,
    Reply,
    Request,
    Rows,
    Shape,
    Stated,
)
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.maths.newton import not_a_product, not_a_solve
from kernfed.methods.personalise.messages import ModelAdopted
from kernfed.models.network_spec import NetworkSpec

Columns = Annotated[Array, Shape("M", "N")]
"""The C columns of each model, side by side."""
Networks = Annotated[Array, Shape("N", "P")]
"""Parameters of each network, in the order of `kernfed.models.network_spec.layout`."""
Numbers = Annotated[tuple[float, ...], MaxLength(1_000_000)]
Ridge = Annotated[float, Range(1e-300)]
NumFolds = Annotated[int, Range(0, 1000)]
MOST_LOSS = 1e12
"""No network that is of use has a larger mean loss, in units in which targets have deviation 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalStart(Reply):
    """H_j⁻¹ c_j and c_j."""

    models = ("moment",)
    directions = ("moment",)

    num_rows: Rows
    weights: Annotated[Array, Shape("M", "C")]
    """The client's own solution."""
    moment: Annotated[Array, Shape("M", "C")]
    """c_j = X_j'Y_j/n_j of the inputs X_j."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalStartRequest(Request[PersonalStart]):
    """The client's own solution and moment of the ridge problem with an intercept of its own."""

    step = "personalise.newton_start"
    reply = PersonalStart
    kinds = (Kind.MODEL_UPDATE, Kind.GRADIENT)

    ridge: Ridge
    """Ridge λ; it does not count the intercept."""
    num_inputs: Annotated[int, Dim("M"), Range(1, 20_000_001)]
    """Inputs: the constant, then the features."""
    num_outputs: NumOutputs

    def refusals(self, reply: PersonalStart) -> Iterator[str]:
        """See `Request.refusals`."""
        yield from not_a_solve(reply.moment, reply.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalSteps(Reply):
    """H_j⁻¹ G for the residuals of many models."""

    num_rows: Rows
    steps: Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalStepsRequest(Request[PersonalSteps]):
    """The client's Hessian solves on the residuals of many weighted problems."""

    step = "personalise.newton_steps"
    reply = PersonalSteps
    kinds = (Kind.NEWTON_STEP,)

    ridge: Ridge
    """Ridge λ."""
    residuals: Columns
    intercept: bool = False
    """Whether the first input is the constant 1, which the ridge does not count."""

    def refusals(self, reply: PersonalSteps) -> Iterator[str]:
        """See `Request.refusals`."""
        yield from not_a_solve(self.residuals, reply.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalProducts(Reply):
    """H_j Z for many directions."""

    num_rows: Rows
    products: Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalProductsRequest(Request[PersonalProducts]):
    """The client's Hessian times the directions of many weighted problems."""

    step = "personalise.hessian_products"
    reply = PersonalProducts
    kinds = (Kind.GRADIENT,)

    ridge: Ridge
    """Ridge λ."""
    directions: Columns
    intercept: bool = False
    """Whether the first input is the constant 1, which the ridge does not count."""

    def refusals(self, reply: PersonalProducts) -> Iterator[str]:
        """See `Request.refusals`."""
        yield from not_a_product(self.directions, reply.products)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepModelRequest(Request[ModelAdopted]):
    """Keep the client's personal model, which is sent to it alone."""

    step = "personalise.keep_model"
    reply = ModelAdopted
    kinds = (Kind.SUMMARY,)
    setup = True

    weights: Annotated[Array, Shape("M", "C")]
    intercept: bool = False
    """Whether the first row is the model's own intercept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedNetworks(Reply):
    """Networks after local steps."""

    models = ("networks",)
    directions = ("networks",)

    num_rows: Rows
    networks: Networks
    kept_back: Annotated[float, Range(0, 1)] = 0.0
    """Part of the parameters that kept their values, for few rows stand behind their gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainNetworksRequest(Request[TrainedNetworks]):
    """Gradient steps on this client's rows from each of the networks given, all at once."""

    step = "personalise.train_networks"
    reply = TrainedNetworks
    kinds = (Kind.MODEL_UPDATE,)

    network: NetworkSpec
    networks: Networks
    learning_rate: Annotated[float, Range(0)]
    """Size of a gradient step."""
    num_steps: Annotated[int, Range(1, 1_000_000)]
    """Gradient steps of a round."""
    batch_size: Annotated[int, Range(0)]
    """Rows per step; 0: all rows. All networks see the same batches."""
    weight_decay: Annotated[float, Range(0)]
    """λ of loss + (λ/2) |θ|²."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of the batches; the client derives its own stream from it by name."""
    num_folds: NumFolds = 0
    """Folds of the client's rows; 0: none are dealt."""
    held: Annotated[tuple[int, ...], MaxLength(1_000_000), Range(0, 1000)] = ()
    """For each network the fold, from 1 on, whose rows it does not see; 0: it sees all. Empty: they all do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkScores(Reply):
    """Held-out losses of a client's candidates."""

    num_rows: Rows
    num_scored: Annotated[int, Range(0, 2**53)]
    """Rows that were predicted unseen; 0: so few lie in a fold that the client's policy lets none be left out."""
    losses: Annotated[Array, Shape("J"), Exact()]
    """Mean loss of each candidate over the client's rows, each predicted by a network that has not seen it."""
    covariance: Annotated[Array, Shape("J", "J"), Exact()]
    """Of these means, over the client's rows; copies of a row vary as one."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if self.num_scored > self.num_rows:
            yield "more rows are scored than there are"
        if (self.losses < 0).any() or (self.losses > MOST_LOSS).any():
            yield f"a mean loss below 0 or above {MOST_LOSS:g}"
        if (np.diagonal(self.covariance) < 0).any() or (np.abs(self.covariance) > MOST_LOSS**2).any():
            yield "a variance of losses that is below 0, or beyond what losses have"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreNetworksRequest(Request[NetworkScores]):
    """Score this client's candidates on its training rows, each by the network that was trained without it."""

    step = "personalise.score_networks"
    reply = NetworkScores
    kinds = (Kind.METRIC,)

    network: NetworkSpec
    networks: Networks
    """Of each candidate, one for each fold that was left out."""
    num_folds: NumFolds
    """Folds of the client's rows."""
    num_candidates: Annotated[int, Dim("J"), Range(1, 1000)]
    """Candidates J."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedNetworks(Reply):
    """Losses of networks on the rows that are kept apart from training."""

    num_rows: Rows
    losses: Annotated[Array, Shape("N"), Exact()]
    """Mean loss of each network over these rows; zeros where there are none."""
    watched: bool
    """Whether rows are kept apart; not where so few would be that the client's policy lets none be."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if (self.losses < 0).any() or (self.losses > MOST_LOSS).any():
            yield f"a mean loss below 0 or above {MOST_LOSS:g}"
        if self.losses.any() and not self.watched:
            yield "losses on no rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchNetworksRequest(Request[WatchedNetworks]):
    """Losses of the networks that weigh this client, on the rows that it keeps apart from training."""

    step = "personalise.watch_networks"
    reply = WatchedNetworks
    kinds = (Kind.METRIC,)

    network: NetworkSpec
    networks: Networks
    num_folds: Annotated[int, Range(2, 1000)]
    """Folds of the client's rows; the first one is kept apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepNetworkRequest(Request[ModelAdopted]):
    """Keep the client's personal network, which is sent to it alone."""

    step = "personalise.keep_network"
    reply = ModelAdopted
    kinds = (Kind.SUMMARY,)
    setup = True

    network: NetworkSpec
    parameters: Annotated[Array, Shape("P")]
    weights: Numbers = ()
    """The collaboration weights that trained it, one of each client; empty: those that the client has found."""
    choice: Name = ""
    """The way in which these were found, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateNetworksRequest(Request[Evaluation]):
    """Measure networks on the client's own test rows: `personal`, `global`, and one trained by the client alone."""

    step = "personalise.evaluate_networks"
    reply = Evaluation
    kinds = (Kind.METRIC,)

    network: NetworkSpec
    personal: Annotated[Array, Shape("P")]
    federated: Annotated[Array, Shape("P")]
    start: Annotated[Array, Shape("P")]
    """From where the client alone trains."""
    local_rounds: Annotated[int, Range(0, 1_000_000)]
    """Rounds of the client alone, with the same steps; 0: do not train or measure a local network."""
    adam: bool
    """Whether a round's movement goes through Adam, as at the coordinator; else it is taken as it is."""
    step_size: Annotated[float, Range(0)]
    """Of Adam."""
    learning_rate: Annotated[float, Range(0)]
    """Size of a gradient step."""
    num_steps: Annotated[int, Range(1, 1_000_000)]
    """Gradient steps of a round."""
    batch_size: Annotated[int, Range(0)]
    """Rows per step; 0: all rows."""
    weight_decay: Annotated[float, Range(0)]
    """λ of loss + (λ/2) |θ|²."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of the batches of the rounds alone."""
    own_centre: Numbers = ()
    """Means of this client's columns, by which the network alone is scaled; empty: by nothing, as those below."""
    own_spread: Annotated[Numbers, Range(1e-300)] = ()
    """Deviations of the columns."""
    own_target_centre: Numbers = ()
    """Means of the targets, as networks learn them."""
    own_target_spread: Annotated[Numbers, Range(1e-300)] = ()
    """Deviations of the targets."""
    num_folds: NumFolds = 0
    """Folds of the rows, of which the client alone keeps the first apart, for the round in which it loses least on it;
    0: it trains on all rows, for all rounds."""
