"""The step of common kernels that are ridges on the rows of all clients: statistics of a round's rows.

N kernels with F features each, a constant among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, Exact, Kind, Range, Shape
from kernfed.methods.online.mixing.gate import MOST_EVIDENCE
from kernfed.methods.online.stream_step import Count, StreamStep, StreamStepRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledStep(StreamStep):
    """Statistics of a client's rows of a round, from which ridges on the rows of all clients are made."""

    diagnostics = ("factor", "evidence")  # have rules of their own, see `kernfed_server.methods.online`

    factor: Annotated[Array, Shape("N", "V"), Exact()]
    """Packed triangular factor for each kernel, as `kernfed.methods.online.pooled_ridge.factor` makes it."""
    evidence: Annotated[float, Range(-MOST_EVIDENCE, MOST_EVIDENCE)]
    """That the common kernels help this client, in standard deviations, see `kernfed.methods.online.mixing.gate.Gate`;
    0 where the job's rule does not ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledStepRequest(StreamStepRequest[PooledStep]):
    """Take the ridges on the rows of all clients, predict and learn the next rows, and answer with their statistics."""

    step = "online.pooled_step"
    reply = PooledStep
    kinds = (Kind.SUFFICIENT_STATISTIC, Kind.METRIC)

    num_kernels: Annotated[int, Dim("N"), Range(1, 256)]
    """Kernels N."""
    num_features: Annotated[int, Dim("F"), Range(1, 100_000)]
    """Features F of each kernel, a constant among them."""
    theta: Annotated[Array, Shape("J", "N", "F"), Exact()]
    """Parameters of each of the J memories."""
    rows: Annotated[Array, Shape("J"), Exact()]
    """Rows of all clients behind them, those that fade counted in part."""
    evidence: Annotated[float, Range(-1e9, 1e9)]
    """Sum of what clients told last."""
    num_evident: Count
    """Clients that did."""
