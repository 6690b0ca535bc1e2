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
    found = {}
    for client, (mean, deviation) in moments.items():
        others = [m for name, m in moments.items() if name != client]
        if not others:
            return {client: 0.0}
        (low, high), (_, spread) = (_middle([m[i] for m in others]) for i in (0, 1))
        usable = spread > 0
        ratios = np.maximum(np.maximum(low - mean, mean - high), deviation)[usable] / spread[usable]
        found[client] = float(ratios.max(initial=0.0))
    return found


def _middle(values: list[Floats]) -> tuple[Floats, Floats]:
    """The two values in the middle, (C,) each; of an odd number they are the median."""
    ordered = np.sort(np.array(values), axis=0)
    return ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
