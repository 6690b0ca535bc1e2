"""The step of a network that is meant to be adapted at each client (Per-FedAvg on streams)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Kind, Range, Shape
from kernfed.methods.online.messages import Rate
from kernfed.methods.online.stream_step import StreamStep, StreamStepRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaStep(StreamStep):
    """A client's update of a network that is meant to be adapted."""

    diagnostics = ("weights",)  # have a rule of their own, see `kernfed_server.methods.online`

    weights: Annotated[Array, Shape("V")]
    """Weights after the client's rows; V = W, or 0 without rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaStepRequest(StreamStepRequest[MetaStep]):
    """Adapt the network to the last row, predict the next, and move the network by the gradient there."""

    step = "online.meta_step"
    reply = MetaStep
    kinds = (Kind.MODEL_UPDATE,)

    hidden: Annotated[int, Range(1, 100_000)]
    """Units of each of the two hidden layers."""
    weights: Annotated[Array, Shape("W")]
    """Of the network, as `kernfed.methods.online.meta` lays them out."""
    adaptation_rate: Rate
    """α: step of a client's own adaptation."""
    learning_rate: Rate
    """β: step of the update that is sent."""
