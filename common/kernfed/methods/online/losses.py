"""The losses of models on streams, one object each; numpy alone, for numbers and for arrays."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernfed.maths.losses import logistic


class Loss(enum.StrEnum):
    """Cost of a prediction f of a target y."""

    SQUARED = "squared"
    """(f - y)²."""
    LOGISTIC = "logistic"
    """ln(1 + exp(f)) - y f, for y in {0, 1}: f is the log-odds of 1."""


@dataclass(frozen=True, slots=True)
class StreamLoss:
    """One of them, elementwise in predictions f and targets y."""

    value: Callable[[Any, Any], Any]
    """Loss of f for y."""
    slope: Callable[..., Any]
    """Its derivative by f, called as `value` is."""
    bend: Callable[[Any], Any]
    """Its second derivative by f."""
    curvature: float
    """Its largest second derivative by f."""
    served: Callable[[Any], Any]
    """The prediction that a person sees: f itself, or the probability of 1."""
    ends: tuple[float, float] = (0.0, 1.0)
    """Least and largest target."""


LOSSES: Mapping[Loss, StreamLoss] = {
    Loss.SQUARED: StreamLoss(
        value=lambda f, y: (f - y) ** 2,
        slope=lambda f, y: 2.0 * (f - y),
        bend=lambda f: np.full_like(f, 2.0),
        curvature=2.0,
        served=lambda f: f,
    ),
    Loss.LOGISTIC: StreamLoss(
        value=lambda f, y: np.logaddexp(0.0, f) - y * f,
        slope=lambda f, y: logistic(f) - y,
        bend=lambda f: logistic(f) * logistic(-f),
        curvature=0.25,
        served=logistic,
    ),
}
