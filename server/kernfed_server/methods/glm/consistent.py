"""What a client tells of one likelihood in several steps: each number binds the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.likelihood.consistency import Part
from kernfed.methods.glm.families import FamilyName
from kernfed.methods.glm.messages import GlmEnd, GlmEndRequest, GlmStart, GlmSums

_ROUNDING = 1e-9
"""Relative difference up to which two ways to compute a number agree."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Means of targets by which a fit of an intercept begins."""

    replies: Mapping[str, GlmStart]
    """By client."""
    mean: float
    """Of the targets of all, over that of the offset."""

    def contradictions(self, family: FamilyName, client: str, reply: GlmSums) -> Iterator[str]:
        """Why the sums at the beginning cannot be of the targets of which a client told means, in words.

        There the derivative by the intercept is the client's mean less that of all, and of two classes the deviance
        and Pearson's statistic follow from the share of the second one.
        """
        told = self.replies[client]
        scale = 1.0 / self.mean if family is FamilyName.GAMMA and self.mean > 0 else 1.0
        want = (told.numerator - self.mean * told.denominator) * scale
        found, size = float(reply.gradient[0]), (abs(told.numerator) + abs(self.mean) * told.denominator) * scale
        spread = math.sqrt(reply.pearson * max(float(reply.hessian[0, 0]), told.weight if scale != 1.0 else 0.0))
        if abs(found - want) > _ROUNDING * (size + spread):
            yield (
                f"states a derivative of {found:.6g} by the intercept, where the mean of its targets, as it stated "
                f"before, gives {want:.6g}"
            )
        if family is FamilyName.BINOMIAL and 0.0 < self.mean < 1.0:
            second, first = told.numerator, max(told.weight - told.numerator, 0.0)
            odds = self.mean / (1.0 - self.mean)
            deviance = -2.0 * (second * math.log(self.mean) + first * math.log1p(-self.mean))
            for name, value, right in (
                ("deviance", reply.deviance, deviance),
                ("statistic of Pearson's", reply.pearson, second / odds + first * odds),
            ):
                if abs(value - right) > 1e3 * _ROUNDING * right:
                    yield f"states a {name} of {value:.6g} a row, where the share of its classes gives {right:.6g}"


def part_of(at: Floats, reply: GlmSums) -> Part:
    """A client's part of half of the deviance, at coefficients (K,)."""
    hessian = reply.hessian.astype(np.float64)
    return Part(at, reply.deviance / 2.0, -reply.gradient.astype(np.float64), hessian)


def other_at_end(request: GlmEndRequest, part: Part, reply: GlmEnd) -> Iterator[str]:
    """Why the last answer of a client cannot be of the likelihood of which it told sums at the same point, in words.

    Of canonical links second derivatives are their own expectation. Of two classes the log-likelihood is minus half of
    the deviance, and of the normal distribution without weights it follows from it.
    """
    if not np.array_equal(request.coefficients, part.at):
        return
    size = float(np.abs(part.hessian).max(initial=0.0))
    if request.family is not FamilyName.GAMMA and np.abs(reply.information - part.hessian).max() > 1e-6 * size:
        yield "states an information that is not that of its second derivatives"
    if request.family is FamilyName.BINOMIAL:
        want = -part.value
    elif request.family is FamilyName.GAUSSIAN and not request.weights:
        want = -part.value / request.dispersion - 0.5 * math.log(2.0 * math.pi * request.dispersion)
    else:
        return
    if abs(reply.log_likelihood - want) > 1e-6 * (1.0 + abs(want)):
        yield f"states a log-likelihood of {reply.log_likelihood:.6g} a row, where its deviance gives {want:.6g}"
