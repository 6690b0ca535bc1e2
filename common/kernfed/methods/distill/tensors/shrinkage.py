"""Undo at a client the shrinkage that its own kernel ridge regression adds in a round, with a bound.

A plain fit of V shrinks it along each eigenvector of K_pp, by μ/(μ + N_p λ). Equation (7) of the distillation paper
multiplies by the inverse, 1 + N_p λ/μ, at the coordinator, with the kernel and the ridge of the job. A client with
another model does not shrink so, and where μ is small the factor is large: the consensus then grows in each round.
Here each client undoes what its own kernel and ridge shrink, and at most by the factor 1 + `CAP`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.features.kernels import KernelSpec
from kernfed.tensors.kernels import gram

CAP = 3.0
"""Largest N_p λ/μ that counts. In the settings of the paper's tables no bound is as good, to the third digit."""


class Unshrunk:
    """W = V + U min(N_p λ/μ, 3) U'V with the eigenvectors U and eigenvalues μ of the client's own K_pp.

    With a free intercept they are those of the doubly centred matrix, and the mean of V stays as it is: a fit does not
    shrink it.
    """

    def __init__(self, kernel: KernelSpec, public: Tensor, ridge: float, *, free: bool) -> None:
        """Decompose.

        Args:
            kernel: The client's kernel.
            public: Public points, float64 (N_p, d).
            ridge: The client's λ.
            free: Whether its model has an intercept that costs nothing.
        """
        k = gram(kernel, public)
        if free:
            k -= k.mean(dim=0)
            k -= k.mean(dim=1, keepdim=True)
        values, self._vectors = torch.linalg.eigh(k)
        shrunk = len(public) * ridge
        # A rounded eigenvalue below 0 stands for 0, where the bound holds.
        self._gains = shrunk / values.clamp(min=shrunk / CAP)
        self._free = free

    def __call__(self, consensus: Tensor) -> Tensor:
        """W, (N_p, C), for V, (N_p, C)."""
        varying = consensus - consensus.mean(dim=0) if self._free else consensus
        gained: Tensor = self._vectors @ (self._gains[:, None] * (self._vectors.mT @ varying))
        return consensus + gained
