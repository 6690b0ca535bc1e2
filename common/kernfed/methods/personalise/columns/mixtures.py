"""Which mixture of clients' rows a client takes, where what it learns is of columns alone: its own rows decide.

They choose among own rows alone, all rows alike, the weights that were learned, and the clients that are nearest by
embeddings, each leaning on them more or less. Each own row is judged by what follows from the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernfed.arrays import Floats, Integers

ALONE, ALL_ALIKE = 0, 1
"""Places of these two among `mixtures`."""
_NEAREST = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_LEANING = (1.0, 0.3, 0.1)
_EQUAL = 1e-9
"""Relative difference of errors up to which two mixtures are equal: weights that were learned may be those of all."""


def mixtures(own: int, num_rows: Floats, squares: Floats, learned: Floats | None) -> Floats:
    """Weights over clients to choose from, (S, B): `ALONE`, `ALL_ALIKE`, then others.

    Args:
        own: Place t of the client.
        num_rows: Of each client, (B,).
        squares: Unbiased squared distances of the clients' embeddings to its own, (B,).
        learned: Weights that the client has learned already, (B,).
    """
    alone = np.eye(len(num_rows))[own]
    found = [alone, num_rows / num_rows.sum()]
    if learned is not None:
        found.append(learned)
    others = np.array([k for k in np.argsort(squares, kind="stable") if k != own], dtype=np.intp)
    for count in sorted({min(count, len(others)) for count in _NEAREST}):
        for share in _LEANING if count else ():
            weights = np.zeros(len(num_rows))
            weights[others[:count]] = share * num_rows[others[:count]]
            weights[own] = num_rows[own]
            found.append(weights / weights.sum())
    return np.array(found)


def choose_by(
    weights: Floats, own: int, means: Floats, phi: Floats, fold: Integers, error: Callable[[Floats, Integers], float]
) -> int:
    """The mixture that loses least on own rows, each by a mixture without its fold.

    Args:
        weights: Mixtures, (S, B).
        own: Place t of the client.
        means: Embeddings, (B, M).
        phi: Features of own rows, (n, M).
        fold: Which fold each is in, from 0 on, (n,); where there is one fold alone, all rows alike are taken.
        error: Of an embedding, (M,), on the rows of these places, summed.

    Returns:
        Place among the mixtures; the first of those that are equal but for rounding.
    """
    num_folds = int(fold.max()) + 1
    if num_folds < 2:
        return ALL_ALIKE
    others = weights.copy()
    others[:, own] = 0.0
    without = others @ means
    errors = np.zeros(len(weights))
    for apart in range(num_folds):
        rest, held = phi[fold != apart].mean(axis=0), np.flatnonzero(fold == apart)
        errors += [error(mixed + weights[i, own] * rest, held) for i, mixed in enumerate(without)]
    return int(np.flatnonzero(errors <= errors.min() * (1.0 + _EQUAL))[0])
