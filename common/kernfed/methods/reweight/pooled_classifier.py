"""A ridge classifier of all clients' rows from sums over folds, and the test classes that its predictions tell of.

p(predicted | class) is the same at all clients under label shift, so their counts of predictions on rows kept apart add
up to one confusion matrix, where each client alone has too few rows of some class. Needs numpy and scipy alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kernfed.arrays import Floats
from kernfed.maths.triangles import unpack
from kernfed.methods.reweight.label_shift import LabelShift, black_box_shift, priors

FREQUENCIES = 300
_RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def cross_fitted(num_rows: Floats, second_moments: Floats, target_moments: Floats) -> Floats:
    """Ridge solutions without each fold, shape (F, D, C); one ridge for all, the best on the folds left out.

    Args:
        num_rows: Rows of all clients in each fold, shape (F,).
        second_moments: Σ φφ' over them, the constant first, which is not penalised, as triangles, shape (F, T).
        target_moments: Σ φ y' over them, shape (F, D, C).
    """
    num_folds, size, _ = target_moments.shape
    best: tuple[float, Floats] | None = None
    grams = [unpack(second_moments.sum(axis=0) - second_moments[fold], size) for fold in range(num_folds)]
    held = [unpack(second_moments[fold], size) for fold in range(num_folds)]
    rest = num_rows.sum() - num_rows
    places = np.arange(1, size)
    for ridge in _RIDGES:
        solved, error = np.zeros_like(target_moments), 0.0
        for fold in np.flatnonzero(rest > 0):
            shifted = grams[fold] / rest[fold]
            shifted[places, places] += ridge
            moment = (target_moments.sum(axis=0) - target_moments[fold]) / rest[fold]
            w = cho_solve(cho_factor(shifted, lower=True, check_finite=False), moment)
            error += float(np.vdot(w, held[fold] @ w) - 2.0 * np.vdot(w, target_moments[fold]))
            solved[fold] = w
        if best is None or error < best[0]:
            best = error, solved
    assert best is not None  # noqa: S101  # there are candidates
    return best[1]


def classes_of_tests(
    confusion: Mapping[str, Floats], predicted: Mapping[str, Floats], *, all_or_nothing: bool = False
) -> dict[str, LabelShift]:
    """Shares of the classes among each client's test points, from the sum of all confusion matrices.

    Where that sum tells some classes apart too badly, a client's shares of these stay those of its training rows.

    Args:
        confusion: Counts of held-out rows by client, predicted class (row) and class (column), shape (C, C).
        predicted: Counts of predictions on test points, shape (C,), of the clients that have some.
        all_or_nothing: Whether the shares of all classes stay those of its training rows then.
    """
    total = sum((confusion[c] for c in sorted(confusion)), np.zeros(next(iter(confusion.values())).shape))
    return {
        client: black_box_shift(total, predicted[client], _own(confusion.get(client)), all_or_nothing=all_or_nothing)
        for client in sorted(predicted)
    }


def _own(counts: Floats | None) -> Floats | None:
    return None if counts is None or not counts.any() else priors(counts.sum(axis=0))
