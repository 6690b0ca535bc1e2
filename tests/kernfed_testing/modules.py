"""Torch modules as a site may name them in its file."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dense(nn.Module):
    """Two dense layers in float64, in the order of kernfed's own mlp."""

    def __init__(self, num_columns: int, num_outputs: int, width: int = 6) -> None:
        """Draw it from torch's generator."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(num_columns, width), nn.ReLU(), nn.Linear(width, num_outputs)).double()

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, C)."""
        out: Tensor = self.layers(x)
        return out


class Normed(Dense):
    """With batch normalisation before ReLU, a buffer that is not saved, and a counter of its own."""

    def __init__(self, num_columns: int, num_outputs: int, width: int = 6) -> None:
        """Draw it from torch's generator."""
        super().__init__(num_columns, num_outputs, width)
        self.norm = nn.BatchNorm1d(width).double()
        self.register_buffer("drawn", torch.randn(num_columns, dtype=torch.float64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, C)."""
        first, relu, last = self.layers
        out: Tensor = last(relu(self.norm(first(x + 0.01 * self.get_buffer("drawn")))))
        return out


class Stubborn(Dense):
    """Looks at numbers, so that derivatives are taken row by row."""

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, C)."""
        return super().forward(x) * (2.0 if float(x.detach().sum()) == float("inf") else 1.0)
