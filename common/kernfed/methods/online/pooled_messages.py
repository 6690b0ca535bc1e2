"""The step of common kernels that are ridges on the rows of all clients: statistics of a round's rows.

N kernels with F features each, a constant among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, Exact, Kind, Range, Reply, Request, Shape
from kernfed.methods.online.messages import Count, Told
from kernfed.methods.online.own_model import MOST_EVIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledStep(Reply):
    """Statistics of a client's rows of a round, from which ridges on the rows of all clients are made."""

    diagnostics = ("factor", "evidence")  # have rules of their own, see `kernfed_server.methods.online`

    num_samples: Count
    """Rows with targets that were learned from; 0: there was none, and `factor` is empty."""
    ended: bool
    """Whether the stream has no more rows."""
    needs_whole: bool
    """Never set: every request brings all parameters."""
    num_waiting: Count
    """Rows that were predicted and wait for their target."""
    num_skipped: Count
    """Rows left out so far, for a value that is missing or not a number."""
    factor: Annotated[Array, Shape("N", "V"), Exact()]
    """Packed triangular factor for each kernel, as `kernfed.methods.online.pooled_ridge.factor` makes it."""
    evidence: Annotated[float, Range(-MOST_EVIDENCE, MOST_EVIDENCE)]
    """That the common kernels help this client, in standard deviations: see `kernfed.methods.online.own_model.Gate`."""
    num_far: Count = 0
    """Rows left out so far, for a number too far beyond the agreed ranges."""
    num_repeated: Count = 0
    """Rows without target left out so far, since a row with the same key waited for its target."""
    num_failed: Count = 0
    """Rows passed over so far, since learning from them failed twice."""
    told: Told = ()
    """More of this stream, where there is more to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledStepRequest(Request[PooledStep]):
    """Take the ridges on the rows of all clients, predict and learn the next rows, and answer with their statistics."""

    step = "online.pooled_step"
    reply = PooledStep
    kinds = (Kind.SUFFICIENT_STATISTIC, Kind.METRIC)
    once = True

    round_num: Count
    """The round."""
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
    batch_rows: Annotated[int, Range(1, 100_000)]
    """Most rows to learn from; a client whose policy wants more takes that many."""
    wait_s: Annotated[float, Range(0, 60)]
    """Seconds for which to wait for a row where there is none."""
    uncounted_from: Count = 0
    """Round from which on no rows of this client counted: what it learned there it learns again; 0: not known."""
