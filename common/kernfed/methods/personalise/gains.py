"""What a client can hope for from the others, told before any model is scored: from embeddings and their spread alone.

A client's squared error is that of its mixture's embedding from the embedding of its law, E|Σ w_k ν_k - μ_t|². It
bounds what the model of the mixture loses on the client's rows. Equations are those of Fermanian, Le Bars & Bellet,
"Adaptive personalized federated learning via multi-task averaging of kernel mean embeddings". B clients, M features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from kernfed.arrays import Floats
from kernfed.methods.personalise.finding import Gain

_DENSE = 300
"""Up to so many rows or features the largest eigenvalue is that of a whole matrix."""
_LEAST_ROWS = 4
"""Of which the square of a covariance has an unbiased estimate."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the embedded rows of a client vary. Σ is their covariance."""

    largest: float
    """|Σ|_op."""
    square: float
    """Tr Σ², unbiased, at least 0; 0 of fewer than four rows."""


def spread_of(phi: Floats) -> Spread:
    """How embedded rows vary.

    Args:
        phi: Features of the rows, shape (n, M).

    Source of the estimate of Tr Σ²: Himeno & Yamada (2014), equation (1.4).
    """
    n = len(phi)
    if n < 2:
        return Spread(0.0, 0.0)
    centred = phi - phi.mean(axis=0)
    small = centred if phi.shape[1] <= n else centred.T
    products = small.T @ small / (n - 1)
    squares = float(np.square(products).sum())
    if squares == 0.0:  # all rows are the same
        return Spread(0.0, 0.0)
    if len(products) <= _DENSE:
        largest = float(np.linalg.eigvalsh(products)[-1])
    else:
        from scipy.sparse.linalg import eigsh  # noqa: PLC0415  # a sixth of a second; few clients have so many rows

        start = products.sum(axis=1) + float(np.abs(products).max())
        largest = float(eigsh(products, 1, v0=start, tol=1e-9, return_eigenvectors=False)[0])
    if n < _LEAST_ROWS:
        return Spread(max(largest, 0.0), 0.0)
    lengths = np.square(centred).sum(axis=1)
    trace, fourth = float(lengths.sum()) / (n - 1), float(np.square(lengths).sum()) / (n - 1)
    unbiased = (n - 1) * ((n - 1) * (n - 2) * squares + trace**2 - n * fourth) / (n * (n - 2) * (n - 3))
    return Spread(max(largest, 0.0), max(unbiased, 0.0))


def gain_of(
    target: int, weights: Floats, means: Floats, traces: Floats, num_rows: Floats, largest: float, distances: Floats
) -> Gain:
    """What the mixture of one client promises.

    Args:
        target: The client t.
        weights: Of its mixture, on the simplex, shape (B,).
        means: Embeddings, shape (B, M).
        traces: Tr Σ_k, shape (B,).
        num_rows: Shape (B,).
        largest: |Σ_t|_op; 0: not told.
        distances: Between embeddings, without the noise of their rows, shape (B, B).
    """
    n, trace = float(num_rows[target]), float(traces[target])
    alone = trace / n
    error = float(np.square(weights @ means - means[target]).sum()) + 2.0 * float(weights[target]) * alone
    if largest <= 0.0:
        return Gain(alone, error - alone, 0.0, 0.0, 0)
    dimension = trace / largest
    order = np.argsort(distances[target], kind="stable")
    order = np.concatenate([[target], order[order != target]])
    apart, rows, count = distances[target][order], np.cumsum(num_rows[order]), np.arange(len(order))
    u = theorem_constant(len(num_rows), n)
    first = np.square(apart) + (trace + 2.0 * apart) / rows
    second = u / math.sqrt(n) * np.maximum(np.sqrt(count / rows), n**-0.5)
    bounds = first + second * max(trace / math.sqrt(dimension), u / math.sqrt(n))
    best = int(np.argmin(bounds))
    return Gain(alone, error - alone, dimension, float(bounds[best]), best + 1)


def theorem_constant(num_clients: int, num_rows: float) -> float:
    """u_0 = 2 log(B n_1) of Theorem 4.4, above which its constants C_Q and C_P lie."""
    return 2.0 * math.log(max(2.0, num_clients * num_rows))


def probabilities_alike(means: Floats, traces: Floats, squares: Floats, num_rows: Floats) -> Floats:
    """p-values of the hypotheses that two clients have one law, shape (B, B), symmetric; 1 on the diagonal.

    Under it |ν_k - ν_l|² is a sum of squares of independent normal variables with weights (1/n_k + 1/n_l) λ, λ the
    eigenvalues of Σ. A multiple of χ² with the mean and the variance of this sum stands in for it. Mean and variance
    need Tr Σ and Tr Σ² alone, so no row leaves, where permutations of the rows of both clients would need them in one
    place. NaN where a client has not told Tr Σ².

    Args:
        means: Embeddings, shape (B, M).
        traces: Tr Σ_k, shape (B,).
        squares: Tr Σ_k², shape (B,); 0: not told.
        num_rows: Shape (B,).

    Source: Box (1954), Theorem 3.1; the statistic: Gretton et al. (2012), Theorem 12.
    """
    found = np.full((len(means), len(means)), np.nan)
    np.fill_diagonal(found, 1.0)
    known = np.flatnonzero((squares > 0) & (traces > 0))
    if known.size < 2:
        return found
    n = num_rows[known]
    share = n[:, None] / (n[:, None] + n[None, :])
    one = share * traces[known][:, None] + (1 - share) * traces[known][None, :]
    two = share * squares[known][:, None] + (1 - share) * squares[known][None, :]
    centred = means[known] - means[known].mean(axis=0)
    gram = centred @ centred.T
    apart = np.maximum(gram.diagonal()[:, None] - 2.0 * gram + gram.diagonal()[None, :], 0.0)
    scale = (1.0 / n[:, None] + 1.0 / n[None, :]) * two / one
    values = np.triu(chdtrc(np.square(one) / two, apart / scale), 1)
    found[np.ix_(known, known)] = values + values.T
    np.fill_diagonal(found, 1.0)
    return found
