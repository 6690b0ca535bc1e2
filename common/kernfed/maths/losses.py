"""Links from linear scores to predictions, by name: each method's losses name the one that is theirs."""

from __future__ import annotations

import enum

import numpy as np

from kernfed.arrays import Floats


class Link(enum.StrEnum):
    """The function from linear scores to predictions: nothing, softmax, or the logistic or exponential function."""

    IDENTITY = "identity"
    SOFTMAX = "softmax"
    LOGISTIC = "logistic"
    EXPONENTIAL = "exponential"
    """Of regressions whose linear scores are logarithms."""


MOST_MARGIN = 20.0
"""Log-odds beyond which a row is certain of its class: e^-20 for all others. No training with a ridge makes most so."""


def logistic(f: Floats | float) -> Floats:
    """Compute 1/(1 + exp(-f)) without overflow."""
    p: Floats = 0.5 * (1.0 + np.tanh(0.5 * np.asarray(f)))
    return p
