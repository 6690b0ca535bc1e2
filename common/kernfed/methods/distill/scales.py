"""Targets of another scale that are told of, and predictions that no targets make plausible."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.apart import IMPLAUSIBLE

ALARM = 10.0
"""Deviations of the other clients from which on a client's targets are told of."""
WORST = 2.0
"""Times the squared error of predicting the mean, from which on an error is as good as any larger one."""


def implausible(predictions: Floats, mean: Floats, deviation: Floats) -> bool:
    """Whether a prediction, (N_p, C), lies more than `IMPLAUSIBLE` deviations off the clients' targets, (C,)."""
    far = np.abs(predictions - mean).max(axis=0) > IMPLAUSIBLE * deviation
    return bool((far & (deviation > 0)).any())
