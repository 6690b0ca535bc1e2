"""An upper bound of a density ratio from counts in bins, and how far the supports overlap.

Source: the FTW-ERM paper (`kernfed.methods.reweight.ratio_spec`), Section 3.1 and Appendix G: bins by k-means; a bin
without training rows has ratio 0. Beyond it, a bin with fewer than `min_rows` training rows does not count either:
with one or two of them the ratio of counts explodes, which is what many bins do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kernfed import rng
from kernfed.arrays import Floats

MAX_CLUSTERED = 20_000
"""Points that k-means is fitted to, drawn from more; all points are then counted."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Counts in M bins."""

    ratios: Floats
    """Σ_l share of test points / share of training rows, shape (M,); 0 without training rows."""
    num_train: npt.NDArray[np.int64]
    """Training rows, shape (M,)."""
    bound: float
    """Greatest ratio over bins with enough training rows; 0 where none has."""
    uncovered: float
    """Share of the test points in bins without a training row, from 0 to 1."""

    @property
    def c(self) -> float:
        """C of (3.2): 1/bound; 0 where there is none."""
        return 1.0 / self.bound if self.bound > 0 else 0.0


def cluster_bins(
    train: Tensor, test: Tensor, test_weights: Tensor, num_clusters: int, min_rows: int = 1, seed: int = 0
) -> Bins:
    """Bin points by k-means on training and test points together.

    Args:
        train: Shape (n, d).
        test: Shape (m, d).
        test_weights: 1/n_l^te for each test point, shape (m,).
        num_clusters: Bins M at most; fewer where they would hold less than 2 `min_rows` different points on average,
            but at least 2.
        min_rows: Fewest training rows of a bin that counts for the bound.
        seed: Of the first centres.
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415  # takes a second of a client's start

    x = torch.cat([train, test]).double().cpu().numpy()
    chosen = x
    if len(x) > MAX_CLUSTERED:
        chosen = x[np.sort(rng.stream(seed, "ratios", "clustered").permutation(len(x))[:MAX_CLUSTERED])]
    different = len(np.unique(chosen, axis=0))
    num = min(max(2, min(num_clusters, different // (2 * min_rows))), different)
    state = rng.seed(seed, "ratios", "k-means", bound=2**31 - 1)
    clusters = KMeans(num, n_init=1, random_state=state).fit(chosen)
    return count_bins(
        clusters.predict(x[: len(train)]), clusters.predict(x[len(train) :]), test_weights.cpu().numpy(), num, min_rows
    )


def count_bins(
    train: npt.NDArray[np.integer],
    test: npt.NDArray[np.integer],
    test_weights: Floats,
    num_bins: int,
    min_rows: int = 1,
) -> Bins:
    """Count points whose bins are known: of each training row (n,) and each test point (m,)."""
    num_train = np.bincount(train, minlength=num_bins).astype(np.int64)
    mass = np.bincount(test, weights=np.asarray(test_weights, np.float64), minlength=num_bins)
    ratios = np.divide(mass * len(train), num_train, out=np.zeros(num_bins), where=num_train > 0)
    counted = ratios[num_train >= max(1, min_rows)]
    total = float(mass.sum())
    uncovered = min(1.0, float(mass[num_train == 0].sum()) / total) if total > 0 else 0.0
    return Bins(ratios, num_train, float(counted.max(initial=0.0)), uncovered)
