"""Shares of a sum, and the cap that keeps one part of it from outweighing all others."""

from __future__ import annotations

from collections.abc import Mapping


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Each weight over their sum; 0 where all are 0."""
    whole = sum(weights.values())
    return {name: weight / whole if whole > 0 else 0.0 for name, weight in weights.items()}


def capped(weights: Mapping[str, float], most: float) -> Mapping[str, float]:
    """Lower the largest weights until none has more than a share of the sum; all others stay as they are.

    With k of them lowered to c, c = most · (k c + the sum of the others), for the smallest k that leaves no other above
    c (water-filling). Where the share is too small for so few weights, all that are not 0 become the least of them.

    Args:
        weights: At least 0, by name.
        most: The share, above 0.

    Returns:
        `weights` itself where none is lowered.
    """
    order = sorted((name for name, weight in weights.items() if weight > 0), key=lambda name: (-weights[name], name))
    rest = sum(weights[name] for name in order)
    if not order or weights[order[0]] <= most * rest * (1.0 + 1e-12):
        return weights
    for k, name in enumerate(order):
        left = 1.0 - k * most
        if left <= 0.0:
            break
        level = most * rest / left
        if weights[name] <= level:
            return {n: level if n in order[:k] else weight for n, weight in weights.items()}
        # `name` is lowered as well
        rest = sum(weights[n] for n in order[k + 1 :])
    least = weights[order[-1]]
    return {n: min(weight, least) for n, weight in weights.items()}
