"""Targets of clients held against each other: units that differ, and predictions that no targets make plausible."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernfed.arrays import Floats

ALARM = 10.0
"""Deviations of the other clients from which on a client's targets are told of."""
IMPLAUSIBLE = 1000.0
"""Deviations from which on targets, predictions and public points are not taken."""

WORST = 2.0
"""Times the squared error of predicting the mean, from which on an error is as good as any larger one."""

Moments = tuple[Floats, Floats]
"""Mean and deviation of a client's targets, (C,) each."""


def how_far(moments: Mapping[str, Moments]) -> dict[str, float]:
    """By how many deviations of the other clients' targets each client's own lie off, or spread more; 0 for one client.

    Of three clients and more the farthest is judged first, and where it is `IMPLAUSIBLE` the others without it: with
    few clients its numbers would make theirs look far off.

    Args:
        moments: By client. The others stand for the plausible by the medians of their means and deviations.
    """
    found: dict[str, float] = {}
    left = dict(moments)
    while True:
        among = _among(left)
        worst = max(among, key=lambda client: among[client], default="")
        if len(left) < 3 or among[worst] < IMPLAUSIBLE:
            return {client: {**found, **among}[client] for client in moments}
        found[worst] = among[worst]
        del left[worst]


def _among(moments: Mapping[str, Moments]) -> dict[str, float]:
    found = {}
    for client, (mean, deviation) in moments.items():
        others = [m for name, m in moments.items() if name != client]
        if not others:
            return {client: 0.0}
        level, spread = (np.median([m[i] for m in others], axis=0) for i in (0, 1))
        usable = spread > 0
        ratios = np.maximum(np.abs(mean - level), deviation)[usable] / spread[usable]
        found[client] = float(ratios.max(initial=0.0))
    return found


def implausible(predictions: Floats, mean: Floats, deviation: Floats) -> bool:
    """Whether a prediction, (N_p, C), lies more than `IMPLAUSIBLE` deviations off the clients' targets, (C,)."""
    far = np.abs(predictions - mean).max(axis=0) > IMPLAUSIBLE * deviation
    return bool((far & (deviation > 0)).any())
