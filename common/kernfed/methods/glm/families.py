"""Families of generalised linear models: a row's part of likelihood, deviance, score and information.

y is a target, η its linear predictor, μ its mean, w its weight: Var(y) = φ V(μ)/w with the dispersion φ.
Source: P. McCullagh and J. A. Nelder, *Generalized Linear Models*, 2nd edition (1989), chapter 2.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.losses import Link, logistic

_MOST = 200.0
"""Linear predictors of a logarithm are taken at most so far from 0: a step that went too far has a finite deviance."""
_LEAST = 1e-300


class FamilyName(enum.StrEnum):
    """The distribution of the target, given the columns."""

    GAUSSIAN = "gaussian"
    BINOMIAL = "binomial"
    POISSON = "poisson"
    GAMMA = "gamma"


class Family(Protocol):
    """One of the families; arrays are (n,)."""

    link: Link
    """From linear predictors to means."""
    dispersed: bool
    """Whether φ is estimated; else it is 1."""

    def fault(self, y: Floats) -> str:
        """Why numbers cannot be targets, after "holds"; empty: they can."""
        ...

    def mean(self, eta: Floats) -> Floats:
        """Compute μ."""
        ...

    def score(self, y: Floats, eta: Floats) -> Floats:
        """Compute the derivative of a row's log-likelihood by η, times φ/w."""
        ...

    def information(self, y: Floats, eta: Floats, *, expected: bool) -> Floats:
        """Compute minus the second derivative, times φ/w; or its expectation over y."""
        ...

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        """Compute a row's deviance over w, at least 0."""
        ...

    def pearson(self, y: Floats, eta: Floats) -> Floats:
        """Compute (y - μ)²/V(μ)."""
        ...

    def log_likelihood(self, y: Floats, eta: Floats, w: Floats, scale: float) -> Floats:
        """Compute a row's log-likelihood at the dispersion `scale`."""
        ...

    def start(self, y: Floats, offset: Floats) -> tuple[Floats, Floats]:
        """Numerator and denominator whose weighted sums' quotient is the mean from which a fit begins."""
        ...

    def intercept(self, mean: float) -> float:
        """The intercept of that mean, without an offset."""
        ...

    def sizes(self, y: Floats, eta: Floats) -> Floats:
        """How large a row's part of the sums is by the weights that somebody chose."""
        ...


class _Gaussian(Family):
    link = Link.IDENTITY
    dispersed = True

    def fault(self, y: Floats) -> str:
        del y
        return ""

    def mean(self, eta: Floats) -> Floats:
        return eta

    def score(self, y: Floats, eta: Floats) -> Floats:
        return y - eta

    def information(self, y: Floats, eta: Floats, *, expected: bool) -> Floats:
        del y, expected
        return np.ones_like(eta)

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        return np.square(y - eta)

    def pearson(self, y: Floats, eta: Floats) -> Floats:
        return np.square(y - eta)

    def log_likelihood(self, y: Floats, eta: Floats, w: Floats, scale: float) -> Floats:
        found: Floats = -0.5 * (w * np.square(y - eta) / scale + np.log(scale / w) + np.log(2.0 * np.pi))
        return found

    def start(self, y: Floats, offset: Floats) -> tuple[Floats, Floats]:
        return y - offset, np.ones_like(y)

    def intercept(self, mean: float) -> float:
        return mean

    def sizes(self, y: Floats, eta: Floats) -> Floats:
        del y
        return np.ones_like(eta)


class _Binomial(Family):
    link = Link.LOGISTIC
    dispersed = False

    def fault(self, y: Floats) -> str:
        del y  # classes, of which the second is 1
        return ""

    def mean(self, eta: Floats) -> Floats:
        return logistic(eta)

    def score(self, y: Floats, eta: Floats) -> Floats:
        return y - logistic(eta)

    def information(self, y: Floats, eta: Floats, *, expected: bool) -> Floats:
        del y, expected
        found: Floats = logistic(eta) * logistic(-eta)
        return found

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        found: Floats = 2.0 * np.logaddexp(0.0, np.where(y > 0.5, -eta, eta))
        return found

    def pearson(self, y: Floats, eta: Floats) -> Floats:
        found: Floats = np.exp(np.minimum(np.where(y > 0.5, -eta, eta), _MOST))
        return found

    def log_likelihood(self, y: Floats, eta: Floats, w: Floats, scale: float) -> Floats:
        del scale
        return -0.5 * w * self.deviance(y, eta)

    def start(self, y: Floats, offset: Floats) -> tuple[Floats, Floats]:
        del offset
        return y, np.ones_like(y)

    def intercept(self, mean: float) -> float:
        return float(np.log(mean / (1.0 - mean))) if 0.0 < mean < 1.0 else 0.0

    def sizes(self, y: Floats, eta: Floats) -> Floats:
        return self.information(y, eta, expected=True)


class _Logarithmic(Family):
    """What the families of a logarithmic link have in common."""

    link = Link.EXPONENTIAL

    def mean(self, eta: Floats) -> Floats:
        found: Floats = np.exp(np.clip(eta, -_MOST, _MOST))
        return found

    def intercept(self, mean: float) -> float:
        return float(np.log(max(mean, _LEAST)))


class _Poisson(_Logarithmic):
    dispersed = False

    def fault(self, y: Floats) -> str:
        return "" if ((y >= 0) & (y == np.floor(y))).all() else "numbers that are no counts: below 0, or not whole"

    def score(self, y: Floats, eta: Floats) -> Floats:
        return y - self.mean(eta)

    def information(self, y: Floats, eta: Floats, *, expected: bool) -> Floats:
        del y, expected
        return self.mean(eta)

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        mu = self.mean(eta)
        logs = np.log(np.maximum(y, 1.0)) - np.clip(eta, -_MOST, _MOST)
        found: Floats = np.maximum(2.0 * (np.where(y > 0, y * logs, 0.0) - (y - mu)), 0.0)
        return found

    def pearson(self, y: Floats, eta: Floats) -> Floats:
        mu = self.mean(eta)
        found: Floats = np.square(y - mu) / mu
        return found

    def log_likelihood(self, y: Floats, eta: Floats, w: Floats, scale: float) -> Floats:
        from scipy.special import gammaln  # noqa: PLC0415  # the coordinator starts without scipy

        del scale
        found: Floats = w * (y * np.clip(eta, -_MOST, _MOST) - self.mean(eta) - gammaln(y + 1.0))
        return found

    def start(self, y: Floats, offset: Floats) -> tuple[Floats, Floats]:
        return y, self.mean(offset)

    def sizes(self, y: Floats, eta: Floats) -> Floats:
        del y
        return self.mean(eta)


class _Gamma(_Logarithmic):
    dispersed = True

    def fault(self, y: Floats) -> str:
        return "" if (y > 0).all() else "numbers that are not above 0"

    def score(self, y: Floats, eta: Floats) -> Floats:
        return y / self.mean(eta) - 1.0

    def information(self, y: Floats, eta: Floats, *, expected: bool) -> Floats:
        return np.ones_like(eta) if expected else y / self.mean(eta)

    def deviance(self, y: Floats, eta: Floats) -> Floats:
        logs = np.log(y) - np.clip(eta, -_MOST, _MOST)
        found: Floats = np.maximum(2.0 * (np.expm1(logs) - logs), 0.0)
        return found

    def pearson(self, y: Floats, eta: Floats) -> Floats:
        return np.square(self.score(y, eta))

    def log_likelihood(self, y: Floats, eta: Floats, w: Floats, scale: float) -> Floats:
        from scipy.special import gammaln  # noqa: PLC0415  # the coordinator starts without scipy

        shape = w / scale
        ratio = y / self.mean(eta)
        found: Floats = shape * np.log(shape * ratio) - shape * ratio - gammaln(shape) - np.log(y)
        return found

    def start(self, y: Floats, offset: Floats) -> tuple[Floats, Floats]:
        return y / self.mean(offset), np.ones_like(y)

    def sizes(self, y: Floats, eta: Floats) -> Floats:
        found: Floats = 1.0 + float(y.mean()) / self.mean(eta)
        return found


FAMILIES: Mapping[FamilyName, Family] = {
    FamilyName.GAUSSIAN: _Gaussian(),
    FamilyName.BINOMIAL: _Binomial(),
    FamilyName.POISSON: _Poisson(),
    FamilyName.GAMMA: _Gamma(),
}
