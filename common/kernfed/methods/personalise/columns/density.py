"""Densities of mixtures of clients' rows, from embeddings alone.

With the Gaussian kernel the embedding ν of rows is their kernel density estimate: f(u) = ν'φ(u)/(2π)^(d/2) for columns
u that are divided by the lengthscales. The score |ν - φ(u)|² of a new row u is a proper one, the kernel score: its mean
over rows of a law with embedding μ is |ν - μ|² and what does not hang on ν. It is linear in the law of the rows, so the
paper's assumption 4.1 holds exactly.

Source: Fermanian, Le Bars & Bellet, "Adaptive personalized federated learning via multi-task averaging of kernel mean
embeddings", Section 5.2: density estimation; the score: Gneiting & Raftery (2007), Section 5.1.
"""

from __future__ import annotations

import math

import numpy as np

from kernfed.arrays import Floats


def score(embedding: Floats, phi: Floats) -> float:
    """Kernel score of rows, summed.

    Args:
        embedding: ν of the density, (M,).
        phi: Features of the rows, (m, M).
    """
    return float(np.square(phi - embedding).sum())


def log_peak(lengthscales: Floats) -> float:
    """Logarithm of f/(ν'φ): of what a row's own part of a density is at this row, per unit of each column.

    The peak itself is beyond floating point where there are many columns, or columns of large units.

    Args:
        lengthscales: ℓ of each column, in the columns' units, (d,).
    """
    return -0.5 * len(lengthscales) * math.log(2.0 * math.pi) - float(np.log(lengthscales).sum())
