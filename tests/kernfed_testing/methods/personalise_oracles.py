"""Formulas of personalisation that only tests compute, to hold the product against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import DataError
from kernfed.methods.personalise.choice import candidates
from kernfed.methods.personalise.crossfit import Target
from kernfed.methods.personalise.crossfit_messages import StageDecision
from kernfed.methods.personalise.embeddings import Embedding, TargetTerms

KernelFunction = Callable[[Floats, Floats], Floats]
"""Gram matrix of two sets of points: (n, d), (m, d) -> (n, m)."""


def kernel_terms(kernel: KernelFunction, points: Sequence[Floats], target: int) -> tuple[Floats, TargetTerms]:
    """Compute the embeddings' Gram matrix and a target's terms without features, from all points in one place.

    Args:
        kernel: The kernel.
        points: Rows of each client, shapes (n_k, d).
        target: Index of the target.

    Returns:
        Gram matrix <ν_k, ν_l>, shape (B, B), and the target's terms.

    Raises:
        DataError: The target has fewer than two rows.

    Source: equations (24) and (25). Printed (24) lacks the factor 1/n.
    """
    z = points[target]
    n = z.shape[0]
    if n < 2:
        raise DataError(f"the target has {n} rows; its covariance needs at least 2")
    means = np.array([[kernel(a, b).mean() for b in points] for a in points])
    own = kernel(z, z)
    diagonal = own.diagonal()
    trace = float((diagonal[:, None] - 2.0 * own + diagonal[None, :]).sum()) / (2.0 * n * (n - 1))
    difference = np.stack([kernel(z, other).mean(axis=1) for other in points], axis=1) - own.mean(axis=1)[:, None]
    spread = np.square(difference).sum(axis=0) / (n - 1) - np.square(difference.mean(axis=0)) * (n / (n - 1))
    squares = means.diagonal() - 2.0 * means[:, target] + means[target, target]
    return means, TargetTerms(n, trace, np.maximum(spread, 0.0), np.sqrt(np.maximum(squares, 0.0)))


def polynomial_gram(means: Floats, second_moments: Floats) -> Floats:
    """Compute <ν_k, ν_l> for the kernel (z·z' + 1)² from moments alone.

    Args:
        means: Mean of each client's rows, shape (B, d).
        second_moments: Uncentred second moments Z'Z/n, shape (B, d, d).

    Returns:
        Gram matrix, shape (B, B).

    Source: equation (18).
    """
    flat = second_moments.reshape(len(means), -1)
    products: Floats = 1.0 + 2.0 * means @ means.T + flat @ flat.T
    return products


def polynomial_embedding(mean: Floats, second_moment: Floats) -> Floats:
    """Compute the embedding for (z·z' + 1)² as a vector in `kernfed.tensors.feature_maps.polynomial_features`'
    coordinates.

    Args:
        mean: Shape (d,).
        second_moment: Z'Z/n, shape (d, d).

    Returns:
        Shape ((d+1)(d+2)/2,).

    Source: equation (17).
    """
    d = mean.shape[0]
    full = np.empty((d + 1, d + 1))
    full[0, 0], full[0, 1:], full[1:, 0], full[1:, 1:] = 1.0, mean, mean, second_moment
    rows, columns = np.triu_indices(d + 1)
    vector: Floats = full[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
    return vector


def squared_mmd(a: Embedding, b: Embedding, *, unbiased: bool = False) -> float:
    """Compute the squared maximum mean discrepancy of two sets of rows.

    Args:
        a: One embedding.
        b: The other.
        unbiased: Subtract the expected error of both means; the result may be below 0.

    Source: Gretton et al. (2012), equations (3) and (5).
    """
    biased = float(np.square(a.mean - b.mean).sum())
    return biased - a.trace / a.num_rows - b.trace / b.num_rows if unbiased else biased


def all_rows_models(target: Target, decisions: Sequence[StageDecision]) -> Floats:
    """Give every candidate's model from all rows, shape (J, p, C), at the stage after these decisions."""
    blocks = target._of_stage(decisions)
    listed = candidates(target.grid, len(decisions))
    models: Floats = np.array([target._models(blocks, j)[-1] for j in range(len(listed))])
    return models
