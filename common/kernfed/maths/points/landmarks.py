"""Nyström features: the root of the kernel matrix of landmarks, which may repeat or depend on each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats
from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.features.spec import FeatureSpec, draw_frequencies
from kernfed.maths.points.kernels import gram
from kernfed.memory import require_bytes

_CUT = 1e-10
"""Eigenvalues below this part of the largest are noise of rounding: their root would raise it above the features."""
_MATRICES = 5
"""Matrices of all pairs of landmarks that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class LandmarkRoot:
    """K⁺^½ of the landmarks' kernel matrix K, and the number of dimensions that the landmarks span."""

    matrix: Floats
    """Symmetric, shape (D, D)."""
    rank: int
    """Eigenvalues of K above the cut; D where landmarks neither repeat nor nearly depend on each other."""


def landmark_kernel(spec: FeatureSpec) -> KernelSpec:
    """The kernel between rows and landmarks that a map's features stand for."""
    return KernelSpec(PointKernel(spec.kernel.value), spec.lengthscales, intercept=False)


def landmark_root(spec: FeatureSpec, landmarks: Floats | None = None) -> LandmarkRoot:
    """Factor the kernel matrix of the landmarks.

    The root is the symmetric one, not a pivoted triangle: pivots may be chosen otherwise by the last bit of another
    processor, and the features of two clients would then be two different maps. Copies of a landmark share its
    eigenvectors, and add none.

    Args:
        spec: The map.
        landmarks: Its landmarks, shape (D, d), in the units of the columns; unset: drawn as the map says.

    Raises:
        DataError: The matrices do not fit into memory.

    Source: Williams & Seeger (2001); Drineas & Mahoney (2005) for the pseudo-inverse.
    """
    num = spec.num_frequencies if landmarks is None else len(landmarks)
    require_bytes(
        _MATRICES * 8 * num * num, f"a map of {num:,} landmarks", "give features.num_frequencies a lower value"
    )
    points = draw_frequencies(spec).omega if landmarks is None else landmarks
    values, vectors = np.linalg.eigh(gram(landmark_kernel(spec), points))
    kept = values > _CUT * values[-1]
    half = vectors[:, kept] / values[kept] ** 0.25
    return LandmarkRoot(half @ half.T, int(kept.sum()))
