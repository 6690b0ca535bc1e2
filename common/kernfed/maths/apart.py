"""How far a client's targets lie from all others'."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernfed.arrays import Floats

IMPLAUSIBLE = 1000.0
"""Deviations from which on predictions and public points are not taken."""

THOUSANDFOLD = 300.0
"""Deviations of the others from which on a client's targets are not taken: nearer to a thousand than to a hundred."""

Moments = tuple[Floats, Floats]
"""Mean and deviation of a client's targets, (C,) each."""


def how_far(moments: Mapping[str, Moments], limit: float = THOUSANDFOLD) -> dict[str, float]:
    """By how many deviations of the other clients' targets each client's own lie off, or spread more; 0 for one client.

    Of three clients and more the farthest is judged first, and where it lies `limit` off the others without it: with
    few clients its numbers would make theirs look far off.

    Args:
        moments: By client. The others stand for the plausible by the medians of their means and deviations. Where two
            of them are in the middle, either's mean is plausible and all between, and the larger deviation: of three
            clients, one that is far off, with hardly any deviation, would make another one look so.
        limit: Deviations from which on a client says nothing about the others.
    """
    found: dict[str, float] = {}
    left = dict(moments)
    while True:
        among = _among(left)
        worst = max(among, key=lambda client: among[client], default="")
        if len(left) < 3 or among[worst] < limit:
            return {client: {**found, **among}[client] for client in moments}
        found[worst] = among[worst]
        del left[worst]


def _among(moments: Mapping[str, Moments]) -> dict[str, float]:
    if len(moments) < 2:
        return dict.fromkeys(moments, 0.0)
    mean, deviation = (np.array([found[i] for found in moments.values()]) for i in (0, 1))
    (low, high), (_, spread) = middle_of_others(mean), middle_of_others(deviation)
    off = np.maximum(np.maximum(low - mean, mean - high), deviation)
    ratios = np.divide(off, spread, out=np.zeros(off.shape), where=spread > 0)
    return dict(zip(moments, ratios.max(axis=1, initial=0.0).tolist(), strict=True))


def middle_of_others(values: Floats) -> tuple[Floats, Floats]:
    """The two values in the middle of all but each, (B, C) each of (B, C); of an odd number they are the median."""
    order = np.argsort(values, axis=0, kind="stable")
    place, ordered = np.argsort(order, axis=0), np.take_along_axis(values, order, axis=0)
    others = len(values) - 1
    low, high = (np.take_along_axis(ordered, i + (place <= i), axis=0) for i in ((others - 1) // 2, others // 2))
    return low, high
