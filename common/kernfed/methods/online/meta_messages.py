"""The step of a network that is meant to be adapted at each client (Per-FedAvg on streams)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Kind, Range, Reply, Request, Shape
from kernfed.methods.online.messages import Count, Rate, Told


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaStep(Reply):
    """A client's update of a network that is meant to be adapted."""

    diagnostics = ("weights",)  # have a rule of their own, see `kernfed_server.methods.online`

    num_samples: Count
    """Rows with targets that were learned from; 0: there was none, and the tensors are empty."""
    ended: bool
    """Whether the stream has no more rows."""
    needs_whole: bool
    """Never set: every request brings the whole network."""
    num_waiting: Count
    """Rows that were predicted and wait for their target."""
    num_skipped: Count
    """Rows left out so far, for a value that is missing or not a number."""
    weights: Annotated[Array, Shape("V")]
    """Weights after the client's rows; V = W, or 0 without rows."""
    num_far: Count = 0
    """Rows left out so far, for a number too far beyond the agreed ranges."""
    num_repeated: Count = 0
    """Rows without target left out so far, since a row with the same key waited for its target."""
    num_failed: Count = 0
    """Rows passed over so far, since learning from them failed twice."""
    told: Told = ()
    """More of this stream, where there is more to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaStepRequest(Request[MetaStep]):
    """Adapt the network to the last row, predict the next, and move the network by the gradient there."""

    step = "online.meta_step"
    reply = MetaStep
    kinds = (Kind.MODEL_UPDATE,)
    once = True

    round_num: Count
    """The round."""
    hidden: Annotated[int, Range(1, 100_000)]
    """Units of each of the two hidden layers."""
    weights: Annotated[Array, Shape("W")]
    """Of the network, as `kernfed.methods.online.meta` lays them out."""
    adaptation_rate: Rate
    """α: step of a client's own adaptation."""
    learning_rate: Rate
    """β: step of the update that is sent."""
    batch_rows: Annotated[int, Range(1, 100_000)]
    """Most rows to learn from."""
    wait_s: Annotated[float, Range(0, 60)]
    """How long to wait for a row where there is none. Seconds."""
    uncounted_from: Count = 0
    """Round from which on no rows of this client counted: what it learned there it learns again; 0: not known."""
