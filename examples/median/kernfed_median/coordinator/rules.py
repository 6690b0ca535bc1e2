"""Rules that take the place of the mean of the clients' weights; K clients.

Source: Yin, Chen, Ramchandran & Bartlett (2018), Definitions 1 and 2.
"""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import ConfigError


def median(weights: Array) -> Array:
    """Entry by entry, the median over the first axis of shape (K, ...)."""
    found: Array = np.median(weights, axis=0)
    return found


def trimmed_mean(weights: Array, trim: float) -> Array:
    """Entry by entry, the mean over the first axis without the floor(trim K) largest and as many smallest.

    Args:
        weights: Shape (K, ...).
        trim: Share that is left out at each end, below 1/2.

    Raises:
        ConfigError: Nothing would be left out; names the key.
    """
    num = len(weights)
    cut = int(trim * num + 1e-9)  # 0.2 of 5 is 1, whatever the last bit of the product says
    if trim > 0 and cut == 0:
        raise ConfigError(
            f"method.trim = {trim:g} leaves out none of {num} clients; give at least {1 / num:.2g}, or 0 for the mean"
        )
    kept = np.sort(weights, axis=0)[cut : num - cut]
    found: Array = kept.mean(axis=0)
    return found
