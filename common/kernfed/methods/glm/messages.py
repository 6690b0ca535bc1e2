"""Steps of generalised linear models: each client tells sums over its rows, of which the pooled likelihood is made.

K coefficients: the intercept first where there is one, then the columns in their order without offset and weights. They
are of columns that all clients scaled alike. Sums are divided by the client's rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, Exact, Kind, Name, Range, Reply, Request, Rows, Shape, Stated
from kernfed.maths.likelihood.inference import not_semidefinite
from kernfed.methods.glm.families import FamilyName

_ROUNDING = 1e-9
"""Relative difference up to which two ways to compute a number agree."""

Coefficients = Annotated[Array, Shape("K"), Exact()]
Square = Annotated[Array, Shape("K", "K"), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmStart(Reply):
    """The targets can be of the family, and what a fit begins with."""

    diagnostics = ("numerator", "denominator", "weight")

    num_rows: Rows
    numerator: float
    """Mean over rows of w times a part of the target; over `denominator`, of all clients, that is the mean to begin
    with."""
    denominator: Annotated[float, Range(0)]
    """Of w times the part of the offset."""
    weight: Annotated[float, Range(0)]
    """Of w."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmStartRequest(Request[GlmStart]):
    """Check the target and the weights, and tell means of the target."""

    step = "glm.start"
    reply = GlmStart
    kinds = (Kind.SUMMARY,)

    family: FamilyName
    """Distribution of the target."""
    offset: Name
    """Column that is added to the linear predictor; empty: none."""
    weights: Name
    """Column of the rows' weights w; empty: each is 1."""

    def refusals(self, reply: GlmStart) -> Iterator[str]:
        """See `Request.refusals`: the mean to begin with is one that the family has."""
        most = reply.weight if self.family is FamilyName.BINOMIAL else math.inf
        if self.family is not FamilyName.GAUSSIAN and not 0.0 <= reply.numerator <= most * (1.0 + _ROUNDING):
            yield f"states targets whose mean is {reply.numerator:.6g}, which no targets of {self.family} have"
        if not self.weights and abs(reply.weight - 1.0) > _ROUNDING:
            yield f"states a mean weight of {reply.weight:.6g} where rows have no weights"
        offset = self.offset and self.family is FamilyName.POISSON
        if not offset and abs(reply.denominator - reply.weight) > _ROUNDING * reply.weight:
            yield f"states a mean weight of {reply.weight:.6g}, and {reply.denominator:.6g} for the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmSums(Reply):
    """Derivatives of the log-likelihood, and the deviance, over rows."""

    directions = ("gradient",)

    num_rows: Rows
    gradient: Coefficients
    """Of the log-likelihood, times the dispersion."""
    hessian: Square
    """Minus the second derivatives, times the dispersion."""
    deviance: Annotated[float, Range(0)]
    """Of w times the deviance of each row."""
    pearson: Annotated[float, Range(0)]
    """Of w (y - μ)²/V(μ)."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        yield from not_semidefinite(self.hessian.astype(np.float64), "Hessian")


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmSumsRequest(Request[GlmSums]):
    """Gradient, Hessian and deviance at some coefficients."""

    step = "glm.sums"
    reply = GlmSums
    kinds = (Kind.GRADIENT, Kind.SUFFICIENT_STATISTIC)

    family: FamilyName
    """Distribution of the target."""
    offset: Name
    """Column that is added to the linear predictor; empty: none."""
    weights: Name
    """Column of the rows' weights w; empty: each is 1."""
    intercept: bool
    """Whether the first coefficient is one."""
    num_coefficients: Annotated[int, Dim("K"), Range(1, 10_000)]
    """Coefficients K."""
    coefficients: Coefficients
    """At which to compute."""

    def refusals(self, reply: GlmSums) -> Iterator[str]:
        """See `Request.refusals`: log t is at most t - 1, so a deviance of counts is at most two of Pearson's."""
        deviance, pearson = reply.deviance, reply.pearson
        apart = abs(deviance - pearson) > _ROUNDING * pearson
        if (self.family is FamilyName.GAUSSIAN and apart) or (
            self.family is FamilyName.POISSON and deviance > 2.0 * pearson * (1.0 + _ROUNDING)
        ):
            yield (
                f"states a deviance of {deviance:.6g} a row beside a statistic of Pearson's of {pearson:.6g}, which no "
                f"targets of {self.family} have"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmEnd(Reply):
    """What standard errors are made of, at the last coefficients."""

    num_rows: Rows
    information: Square
    """Expected second derivatives, times minus the dispersion."""
    scores: Square
    """Sum over groups of rows of the outer product of each group's gradient, over rows; 0 where nobody asked."""
    num_groups: Annotated[int, Range(1, 2**53)]
    """Groups; rows where they have none."""
    log_likelihood: float
    """At the dispersion asked for."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        yield from not_semidefinite(self.information.astype(np.float64), "matrix of information")
        yield from not_semidefinite(self.scores.astype(np.float64), "matrix of scores")
        if self.num_groups > stated.num_rows:
            yield f"states {self.num_groups} groups of {stated.num_rows} rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmEndRequest(Request[GlmEnd]):
    """Information, scores by group, and the log-likelihood at some coefficients."""

    step = "glm.end"
    reply = GlmEnd
    kinds = (Kind.SUFFICIENT_STATISTIC,)

    family: FamilyName
    """Distribution of the target."""
    offset: Name
    """Column that is added to the linear predictor; empty: none."""
    weights: Name
    """Column of the rows' weights w; empty: each is 1."""
    intercept: bool
    """Whether the first coefficient is one."""
    num_coefficients: Annotated[int, Dim("K"), Range(1, 10_000)]
    """Coefficients K."""
    coefficients: Coefficients
    """At which to compute."""
    dispersion: Annotated[float, Range(0)]
    """At which the likelihood is told; above 0."""
    robust: bool
    """Whether scores by group are wanted."""
