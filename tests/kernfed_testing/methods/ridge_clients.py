"""Ridge clients for tests of the maths: golden inputs, and weighted means over clients in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernfed.maths.newton import BlockConjugateGradients, PaperNewton
from kernfed.tensors.ridge import LocalRidge
from kernfed_testing.places import GOLDEN

Matrix = npt.NDArray[np.float64]


def load_golden(name: str) -> dict[str, Any]:
    """Read tests/golden/<name>.json."""
    golden: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return golden


@dataclass(frozen=True)
class RidgeClients:
    """Clients of one ridge problem, weighted by their rows."""

    clients: list[LocalRidge]

    @classmethod
    def of(cls, parts: list[tuple[Any, Any]], ridge: float) -> RidgeClients:
        """Make clients from pairs of features (n, M) and targets (n, C)."""
        tensors = [[torch.as_tensor(array, dtype=torch.float64) for array in part] for part in parts]
        return cls([LocalRidge(z, y, ridge) for z, y in tensors])

    def mean(self, compute: Callable[[LocalRidge], torch.Tensor]) -> Matrix:
        """Σ_j p_j of what each client computes."""
        total = sum(client.num_rows for client in self.clients)
        terms = [(client.num_rows / total) * compute(client).numpy() for client in self.clients]
        mean: Matrix = np.add.reduce(terms)
        return mean

    def gradient(self, w: Matrix) -> Matrix:
        """Global gradient at W."""
        return self.mean(lambda client: client.gradient(torch.from_numpy(w)))

    def newton_step(self, g: Matrix) -> Matrix:
        """P G."""
        return self.mean(lambda client: client.newton_step(torch.from_numpy(g)))

    def hessian_product(self, v: Matrix) -> Matrix:
        """H V."""
        return self.mean(lambda client: client.hessian_product(torch.from_numpy(v)))

    def start_paper(self) -> PaperNewton:
        """First trip of the paper's iteration."""
        return PaperNewton(self.mean(LocalRidge.solve), self.mean(LocalRidge.moment))

    def step_paper(self, state: PaperNewton) -> None:
        """One round of the paper's iteration."""
        gradient = self.gradient(state.weights)
        state.absorb(gradient, self.newton_step(gradient))

    def start_auto(self, **settings: float) -> BlockConjugateGradients:
        """First two trips of the default."""
        w, c = self.mean(LocalRidge.solve), self.mean(LocalRidge.moment)
        return BlockConjugateGradients.start(w, self.gradient(w) + c, c, **settings)

    def step_auto(self, state: BlockConjugateGradients) -> float:
        """Two more trips; returns the relative certificate from before them."""
        z = self.newton_step(state.residual)
        bound = state.relative_bound(z)
        state.absorb(z, self.hessian_product(z))
        return bound
