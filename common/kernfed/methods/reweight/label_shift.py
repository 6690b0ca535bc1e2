"""Label shift: ratios that depend on the class alone, with known test priors or estimated without test labels.

Under label shift p(x | y) is the same everywhere and p(y) is not. Where classes are separable the density ratio is that
of the priors, p^te(y)/p^tr(y). Needs numpy and scipy alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.errors import DataError

LEAST_SINGULAR_VALUE = 0.05
"""Below this the predictions hardly tell some classes apart, and the estimate would be noise in such directions."""


@dataclass(frozen=True, slots=True)
class LabelShift:
    """An estimate of a client's test prior."""

    prior: Floats
    """p^te(y), on the simplex, shape (C,)."""
    smallest_singular_value: float
    """Of the matrix of p(predicted | class) over the classes that were trained on; 1 is perfect, 0 tells nothing."""
    fallback: str
    """Why shares of classes that predictions do not tell apart are the training prior's; empty where none are."""


def label_ratios(test_priors: Floats, train_prior: Floats) -> Floats:
    """Compute Σ_l p_l^te(y) / p^tr(y) of each class.

    Args:
        test_priors: Of the K clients whose test distributions count, shape (K, C), each row on the simplex.
        train_prior: Of the client that trains, shape (C,).

    Returns:
        Shape (C,); 0 for a class without training rows, where no row needs it.

    Source: the FTW-ERM paper, Proposition 4, with (3.1).
    """
    total = np.asarray(test_priors, np.float64).sum(axis=0)
    train = np.asarray(train_prior, np.float64)
    ratios: Floats = np.divide(total, train, out=np.zeros_like(total), where=train > 0)
    return ratios


def uncovered_share(test_prior: Floats, train_prior: Floats) -> float:
    """Compute the share of test rows whose class has no training row, which no weight can stand in for."""
    total = float(np.sum(test_prior))
    return float(np.asarray(test_prior)[np.asarray(train_prior) <= 0].sum()) / total if total > 0 else 0.0


def priors(counts: npt.ArrayLike) -> Floats:
    """Divide class counts, shape (..., C), by their sum.

    Raises:
        DataError: They sum to 0.
    """
    found = np.asarray(counts, np.float64)
    sums = found.sum(axis=-1, keepdims=True)
    if not (sums > 0).all():
        raise DataError("a client has no rows to count classes of; give it test rows, or leave it out of the job")
    shares: Floats = found / sums
    return shares


def black_box_shift(
    confusion: npt.ArrayLike,
    predicted: npt.ArrayLike,
    own: Floats | None = None,
    least_singular_value: float = LEAST_SINGULAR_VALUE,
    *,
    all_or_nothing: bool = False,
) -> LabelShift:
    """Estimate the test prior from what a classifier predicts on unlabelled test points.

    q = argmin |A q - μ|² over the simplex, A = p(predicted | class) from held-out training rows and μ = p(predicted) on
    test points. Classes without training rows get q = 0. Where the smallest singular value of A is below
    ε = `least_singular_value`, q = argmin |A q - μ|² + ε² |q - p|² with the training prior p, and `fallback` says why:
    q then stays p in the directions that predictions do not tell, and follows them in all others.

    Args:
        confusion: Counts, row = predicted, column = class, shape (C, C), of held-out rows.
        predicted: Counts of predictions on test points, shape (C,).
        own: p, on the simplex, 0 for classes without held-out rows, shape (C,); None: that of the held-out rows.
        least_singular_value: ε.
        all_or_nothing: Whether q is p there, in all directions.

    Raises:
        DataError: Shapes differ, or there are no rows.

    Source: Lipton, Wang & Smola (2018), Section 3, with the simplex as a constraint instead of clipping. The idea of a
    penalty is that of Azizzadenesheli, Liu, Yang & Anandkumar (2019), who have it on the weights.
    """
    counts, test = np.asarray(confusion, np.float64), np.asarray(predicted, np.float64)
    num = test.shape[0]
    if counts.shape != (num, num):
        raise DataError(f"a confusion matrix of shape {counts.shape} for {num} classes; want ({num}, {num})")
    train_prior, mu = priors(counts.sum(axis=0)), priors(test)
    seen = np.flatnonzero(counts.sum(axis=0) > 0)
    a = counts[:, seen] / counts[:, seen].sum(axis=0)
    smallest = float(np.linalg.svd(a, compute_uv=False)[-1])
    prior, why = np.zeros(num), ""
    if smallest < least_singular_value:
        why = (
            f"the smallest singular value of the confusion matrix is {smallest:.3g}, below {least_singular_value:g}: "
            "the classifier hardly tells some classes apart"
        )
        near = (train_prior if own is None else own)[seen]
        if all_or_nothing:
            prior[seen] = near
            return LabelShift(prior, smallest, why)
        a = np.vstack([a, least_singular_value * np.eye(len(seen))])
        mu = np.concatenate([mu, least_singular_value * near])
    prior[seen] = _least_squares_on_simplex(a, mu)
    return LabelShift(prior, smallest, why)


def _least_squares_on_simplex(a: Floats, b: Floats) -> Floats:
    """Minimise |A q - b|² over q >= 0 with sum 1, by the active-set method on an equivalent problem.

    With B = A - b 1' and sum q = 1, A q - b = B q. argmin |B q|² over the simplex is the minimiser v of
    |B v|² + (1'v - 1)² over v >= 0, scaled to sum 1: for each direction the best scale is a function of |B q|² alone.
    """
    from scipy.optimize import nnls  # noqa: PLC0415  # takes a third of a second of the coordinator's start

    centred = a - b[:, None]
    system = np.vstack([centred, np.ones((1, a.shape[1]))])
    found, _ = nnls(system, np.concatenate([np.zeros(len(b)), [1.0]]))
    share: Floats = found / found.sum()
    return share
