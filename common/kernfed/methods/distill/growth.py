"""Whether a consensus moves away instead of settling: a bound on how far it may go from where it began."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernfed.arrays import Floats

LEAP = 10.0
"""Scales that a consensus moves in one round, from which on nothing later is good that did not settle."""
FAR = 100.0
"""Scales from its beginning beyond which a consensus diverges, where it also moves further in each round."""
ABSURD = 1e6
"""Scales beyond which it diverges, however it moves."""
_WINDOW = 5


def scale_of(consensus: Floats, predictions: Sequence[Floats], deviation: Floats | None) -> float:
    """The size by which movements are judged, above 0 unless all is constant.

    Args:
        consensus: Of the first round, (N_p, C).
        predictions: Of the clients in that round, each (N_p, C).
        deviation: Of all clients' targets, (C,), where it is known.

    Returns:
        The largest of: root mean square of the consensus around its mean, of the clients around it, and of `deviation`.
    """
    sizes = [rms(consensus - consensus.mean(axis=0)), *(rms(p - consensus) for p in predictions)]
    return max(sizes + ([] if deviation is None else [rms(deviation)]))


def diverges(steps: Sequence[float], drift: float, scale: float) -> bool:
    """Judge a consensus by its steps so far.

    A de-regularised consensus may go far in even steps, where the ridge is large; it then moves less from round to
    round, and is no divergence.

    Args:
        steps: Root mean squares of the movements in rounds 2, 3, …
        drift: Root mean square of the consensus less that of round 1.
        scale: From `scale_of`.
    """
    if not np.isfinite(drift) or (scale > 0 and drift > ABSURD * scale):
        return True
    back = min(_WINDOW, len(steps) - 1)
    return back > 0 and scale > 0 and drift > FAR * scale and steps[-1] > steps[-1 - back]


def rms(values: Floats) -> float:
    """Root mean square of all numbers."""
    return float(np.sqrt(np.mean(np.square(values))))
