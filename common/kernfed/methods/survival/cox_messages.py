"""Steps of Cox's proportional hazards: each client tells sums over its rows, which are a stratum of their own.

K columns, all but that of the event, which all clients scaled alike. Sums are divided by the client's rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, Exact, Kind, Name, Range, Reply, Request, Rows, Shape, Stated, Whole
from kernfed.maths.likelihood.inference import not_semidefinite
from kernfed.methods.survival.partial import Ties

_ROUNDING = 1e-9
"""Relative difference up to which two ways to compute a number agree."""

Coefficients = Annotated[Array, Shape("K"), Exact()]
Square = Annotated[Array, Shape("K", "K"), Exact()]
Count = Annotated[int, Range(0, 2**53)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoxSums(Reply):
    """The partial likelihood of a client's rows, and its derivatives, over rows."""

    directions = ("gradient",)

    num_rows: Rows
    deaths: Count
    """Rows in which the event came."""
    gradient: Coefficients
    """Of the log-likelihood."""
    hessian: Square
    """Minus the second derivatives."""
    loss: Annotated[float, Range(0)]
    """Minus the log-likelihood."""
    early: bool = False
    """Whether the mean of as many least times as the policy says is below 0."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        yield from not_semidefinite(self.hessian.astype(np.float64), "Hessian")
        if self.deaths > stated.num_rows:
            yield f"states {self.deaths} events of {stated.num_rows} rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoxSumsRequest(Request[CoxSums]):
    """Partial likelihood, gradient and Hessian at some coefficients."""

    step = "cox.sums"
    reply = CoxSums
    kinds = (Kind.GRADIENT, Kind.SUFFICIENT_STATISTIC)

    event: Name
    """Column that says whether the event came; empty: it came in each row."""
    ties: Ties
    """The rule for events at one time."""
    num_coefficients: Annotated[int, Dim("K"), Range(1, 10_000)]
    """Coefficients K."""
    coefficients: Coefficients
    """At which to compute."""

    def refusals(self, reply: CoxSums) -> Iterator[str]:
        """See `Request.refusals`: where all rows have the same risk, only numbers of rows at risk count.

        At the l-th event from the last one l rows or more are at risk, and never more than all rows.
        """
        deaths, lost = reply.deaths, reply.loss * reply.num_rows
        least, most = math.lgamma(deaths + 1.0), deaths * math.log(max(reply.num_rows, 1))
        near = _ROUNDING * most
        if not np.any(self.coefficients) and not least - near <= lost <= most + near:
            yield (
                f"states a log-likelihood of {-lost:.6g} of {deaths} events among {reply.num_rows} rows where no "
                f"column counts, and these have one from {-most:.6g} to {-least:.6g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoxEnd(Reply):
    """What standard errors, concordance and the baseline hazard are made of, at the last coefficients."""

    diagnostics = ("times", "hazards")

    num_rows: Rows
    scores: Square
    """Sum over groups of rows of the outer product of each group's score residuals, over rows; 0 where nobody asked."""
    num_groups: Annotated[int, Range(1, 2**53)]
    """Groups; rows where they have none."""
    pairs: Count
    """Pairs of rows of which one had the event while the other was there."""
    concordant: Count
    """Those in which the one with the event has the greater risk."""
    equal: Count
    """Those with equal risks."""
    times: Annotated[Array, Shape("H"), Exact()]
    """Ascending; each is a mean over as many events as the policy says."""
    deaths: Annotated[Array, Shape("H"), Whole()]
    """Events of each."""
    hazards: Annotated[Array, Shape("H"), Exact()]
    """Increments of the cumulative baseline hazard there, of a row at the columns' means."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        yield from not_semidefinite(self.scores.astype(np.float64), "matrix of scores")
        if self.num_groups > stated.num_rows or int(self.deaths.sum()) > stated.num_rows:
            yield f"states more groups, or events, than the {stated.num_rows} rows"
        if self.concordant + self.equal > self.pairs or 2 * self.pairs > stated.num_rows * (stated.num_rows - 1):
            yield "states more pairs in order than pairs, or more pairs than rows make"
        if (np.diff(self.times) <= 0).any() or (self.hazards < 0).any():
            yield "states times that are not in ascending order, or a hazard below 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoxEndRequest(Request[CoxEnd]):
    """Score residuals by group, concordance, and the baseline hazard at some coefficients."""

    step = "cox.end"
    reply = CoxEnd
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    event: Name
    """Column that says whether the event came; empty: it came in each row."""
    ties: Ties
    """The rule for events at one time."""
    num_coefficients: Annotated[int, Dim("K"), Range(1, 10_000)]
    """Coefficients K."""
    coefficients: Coefficients
    """At which to compute."""
    robust: bool
    """Whether score residuals by group are wanted."""
    baseline: bool
    """Whether the baseline hazard is wanted."""
