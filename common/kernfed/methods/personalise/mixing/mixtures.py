"""Ridge models of mixtures of a client's normal equations with those of the others, for many shares and ridges.

p inputs (an intercept may be the first), C outputs, J candidates.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv

from kernfed.arrays import Floats

_TINY = 1e-300

Equations = tuple[Floats, Floats]
"""X'X/n, shape (p, p), and X'Y/n, shape (p, C)."""


def solve_mixtures(
    own: Equations, others: Equations, leans: Floats, ridges: Floats, penalised: Floats, ridge_scale: float = 1.0
) -> Floats:
    """Solve ((1 - λ) S + λ S' + ρ s m P) W = (1 - λ) g + λ g' for each candidate, shape (J, p, C).

    m is the mean of the penalised diagonal of the mixture, P has 1 on the diagonal where an input is penalised.

    Args:
        own: S and g.
        others: S' and g'.
        leans: λ of each candidate, shape (J,).
        ridges: ρ of each candidate, shape (J,).
        penalised: 1 per input that the ridge counts, 0 for an intercept; shape (p,).
        ridge_scale: s.
    """
    size, count = len(penalised), max(1.0, float(penalised.sum()))
    mine, theirs = (gram.diagonal() @ penalised / count for gram, _ in (own, others))
    added = ridges * np.maximum(((1.0 - leans) * mine + leans * theirs) * ridge_scale, _TINY)
    left = np.empty((len(leans), size, size))
    right = np.empty((len(leans), *own[1].shape))
    ends = [*np.flatnonzero(leans[1:] != leans[:-1]) + 1, len(leans)]  # neighbours differ in their ridge alone
    for start, end in zip([0, *ends], ends, strict=False):
        lean = float(leans[start])
        left[start:end] = (1.0 - lean) * own[0] + lean * others[0]
        right[start:end] = (1.0 - lean) * own[1] + lean * others[1]
    left.reshape(len(leans), -1)[:, :: size + 1] += added[:, None] * penalised
    models = np.empty_like(right)
    for j in range(len(leans)):
        # Of a row-major matrix LAPACK sees the transpose, whose lower triangle it overwrites: the other one stays.
        _, models[j], info = dposv(left[j].T, right[j], lower=1, overwrite_a=1)
        if info:  # rounding has made it indefinite: by elimination
            whole = np.tril(left[j]) + np.tril(left[j], -1).T
            whole[np.diag_indices(size)] = _diagonal(own[0], others[0], float(leans[j])) + added[j] * penalised
            models[j] = np.linalg.solve(whole, right[j])
    return models


def _diagonal(own: Floats, others: Floats, lean: float) -> Floats:
    diagonal: Floats = (1.0 - lean) * own.diagonal() + lean * others.diagonal()
    return diagonal
