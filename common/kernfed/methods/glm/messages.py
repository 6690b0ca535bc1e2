"""Steps of generalised linear models: each client tells sums over its rows, of which the pooled likelihood is made.

K coefficients: the intercept first where there is one, then the columns in their order without offset and weights. They
are of columns that all clients scaled alike. Sums are divided by the client's rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, Exact, Kind, Name, Range, Reply, Request, Rows, Shape, Stated
from kernfed.maths.likelihood.inference import not_semidefinite
from kernfed.methods.glm.families import FamilyName

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
