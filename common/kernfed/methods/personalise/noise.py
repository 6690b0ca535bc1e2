"""Gaussian noise on a mean embedding, with the (epsilon, delta) that it buys.

Neighbouring data sets differ in one row's content; their number n is public. Features are bounded, |φ(z)| <= M, so the
mean of n of them moves by at most 2 M/n: the sensitivity. Normal noise of deviation σ = factor · 2 M/n on each
coordinate then makes the embedding (epsilon, delta)-differentially private. The factor is the smallest one, for any
epsilon, not only up to 1.

Source: Balle & Wang (2018), Theorem 8 (the analytic Gaussian mechanism).
"""

from __future__ import annotations

import math

import numpy as np

from kernfed import rng
from kernfed.errors import ConfigError
from kernfed.methods.personalise.embeddings import Embedding


def sensitivity(num_rows: int, bound: float) -> float:
    """Compute how far the mean of `num_rows` vectors of norm at most `bound` moves if one of them changes: 2 M/n."""
    return 2.0 * bound / num_rows


def noise_factor(epsilon: float, delta: float) -> float:
    """Compute the smallest σ, in units of the sensitivity, that is (epsilon, delta)-differentially private.

    It solves Φ(1/(2σ) - εσ) - e^ε Φ(-1/(2σ) - εσ) = δ, which falls in σ, by bisection; the upper end is taken.

    Raises:
        ConfigError: Epsilon is not above 0, or delta not between 0 and 1.
    """
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ConfigError(
            f"method.noise: epsilon {epsilon:g} and delta {delta:g}; give epsilon above 0 and delta between 0 and 1, "
            "well below one over the number of rows"
        )
    low, high = 0.0, 1.0
    while _delta(high, epsilon) > delta:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if _delta(middle, epsilon) > delta:
            low = middle
        else:
            high = middle
    return high


def add_noise(embedding: Embedding, factor: float, bound: float, draw: rng.Stream) -> Embedding:
    """Noise an embedding before it leaves its client.

    The trace that goes with it is made from the noised mean alone, with |φ|² put at its expectation for cosine
    features, 1: so it reveals nothing more. It counts the noise: `trace / num_rows` stays the expected squared error.

    Args:
        embedding: Of n rows.
        factor: As `noise_factor` gives it.
        bound: M, a bound of |φ(z)|.
        draw: Where the noise comes from. Whoever knows the stream can take the noise off again.
    """
    n, size = embedding.num_rows, embedding.mean.size
    deviation = factor * sensitivity(n, bound)
    mean = embedding.mean + deviation * draw.normal(1, size)[0]
    noise = size * deviation**2
    square = min(max(float(np.square(mean).sum()) - noise, 0.0), 1.0)
    trace = n / max(1, n - 1) * (1.0 - square) + n * noise
    return Embedding(n, mean, trace)


def _delta(sigma: float, epsilon: float) -> float:
    from scipy.special import log_ndtr, ndtr  # noqa: PLC0415  # a quarter second that no start waits for

    half = 1.0 / (2.0 * sigma)
    return float(ndtr(half - epsilon * sigma) - math.exp(min(700.0, epsilon + log_ndtr(-half - epsilon * sigma))))
