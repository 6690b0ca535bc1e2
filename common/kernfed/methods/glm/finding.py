"""The result of a generalised linear model beside the model: its coefficients and how well it fits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.maths.likelihood.inference import Coefficient
from kernfed.methods.finding import UNLESS_NONE, Finding

INTERCEPT = "(intercept)"


@dataclass(frozen=True, slots=True)
class GlmFinding(Finding):
    """A generalised linear model of all rows."""

    name: ClassVar[str] = "glm"

    family: str
    link: str
    target: str
    errors: str
    """`model`, `robust by row` or `robust by group`."""
    confidence: float
    rows: int
    coefficients: tuple[Coefficient, ...]
    covariance: tuple[tuple[float, ...], ...]
    """Of the estimates, in their order."""
    freedom: int
    """Rows less coefficients."""
    student: bool
    """Whether tests and intervals are of Student's t with that freedom; else of the normal distribution."""
    deviance: float
    dispersion: float
    """Pearson's statistic over the freedom; 1 for families without one."""
    pearson: float
    """Pearson's statistic."""
    log_likelihood: float
    aic: float
    """2 K less twice the log-likelihood; the dispersion is not counted."""
    iterations: int
    null_deviance: float | None = field(default=None, metadata=UNLESS_NONE)
    """Of the intercept alone; None without an intercept, and for two classes with an offset."""
    groups: int | None = field(default=None, metadata=UNLESS_NONE)
    """Groups of the sandwich; None: it was not asked for."""
