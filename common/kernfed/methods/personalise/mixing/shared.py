"""What every client has of all others: sums over their rows, from which personal models are made.

B clients, p inputs (an intercept may be the first), C outputs, M embedding features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kernfed.arrays import Floats
from kernfed.methods.personalise.clusters import ClusterSums, Labels


@dataclass(frozen=True, slots=True)
class Shared:
    """Every client's sums over its rows, in one order of clients."""

    num_rows: Floats
    """Training rows n_k, shape (B,)."""
    means: Floats
    """Embeddings, shape (B, M)."""
    noise: Floats
    """Tr Σ_k/N_k of the N_k rows that each embedding is of: its expected squared error, shape (B,)."""
    grams: Floats
    """S_k = X'X/n_k as upper triangles, shape (B, p (p + 1)/2); see `kernfed.maths.triangles`."""
    moments: Floats
    """g_k = X'Y/n_k, shape (B, p, C)."""
    squares: Floats
    """Mean of |y|², shape (B,)."""
    mean_squares: Floats = field(init=False)
    """Squared norms of the embeddings, shape (B,)."""
    labels: Mapping[int, Labels] = field(default_factory=dict)
    """Clusters of all clients by their number, shape (B,), where they were found once for everyone."""
    _sums: dict[int, ClusterSums] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_squares", np.einsum("bm,bm->b", self.means, self.means))

    def cluster_sums(self, num_clusters: int) -> ClusterSums:
        """Sums over the rows of each of `labels`' clusters, made once."""
        if num_clusters not in self._sums:
            labels = self.labels[num_clusters]
            self._sums[num_clusters] = ClusterSums(self.num_rows, self.grams, self.moments, labels, num_clusters)
        return self._sums[num_clusters]
