"""Feature maps as specifications: what travels is (kernel, lengthscales, dimension, seed), never the matrix.

Both ends draw the same frequencies from a counter-based generator (`kernfed.rng`) and compare a fingerprint. The map
itself, on CPU or CUDA, is in `kernfed.feature_maps`; this module needs numpy alone.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

from kernfed.messages.base import Dim, MaxLength, Range


class Kernel(enum.StrEnum):
    """Kernels of the feature map; ℓ is the lengthscale, per column where several are given.

    With r² = Σ_i ((x_i - x'_i)/ℓ_i)²: Gaussian exp(-r²/2), Laplace exp(-r), Matérn 3/2 (1+√3 r)exp(-√3 r),
    Matérn 5/2 (1+√5 r+5r²/3)exp(-√5 r). Linear x'x' and polynomial (x'x' + 1)² are mapped exactly, on columns divided by ℓ.
    """

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    MATERN32 = "matern32"
    MATERN52 = "matern52"
    LINEAR = "linear"
    POLYNOMIAL2 = "polynomial2"


class FeatureForm(enum.StrEnum):
    """How random frequencies become features.

    COSINE: sqrt(2/D) cos(Wx + b), D numbers. SINE_COSINE: D^-1/2 [sin Wx, cos Wx], 2 D numbers, unit norm.
    HALF_COSINE: D^-1/2 cos(Wx + b) as paper 002 prints it; approximates half the kernel, so its ridge counts double.
    """

    COSINE = "cosine"
    SINE_COSINE = "sine-cosine"
    HALF_COSINE = "half-cosine"


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """A feature map, up to the bits of its frequencies."""

    kernel: Kernel
    form: FeatureForm
    num_columns: Annotated[int, Range(1, 1_000_000)]
    """Input columns d."""
    lengthscales: Annotated[tuple[float, ...], MaxLength(1_000_000), Range(1e-300)]
    """One for all columns, or one per column."""
    num_frequencies: Annotated[int, Range(0, 10_000_000)]
    """Random frequencies D; 0 for linear and polynomial maps."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    num_features: Annotated[int, Dim("M"), Range(1, 20_000_000)]
    """Numbers per row after the map; follows from the rest, stated so that both ends can check it."""
