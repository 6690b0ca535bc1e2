"""A small frozen network, and images and texts for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


class TinyNet(nn.Module):
    """Strided convolutions and the mean over the picture: `width` features."""

    calls = 0

    def __init__(self, width: int = 6, channels: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Features of images, (n, width)."""
        TinyNet.calls += 1
        return torch.relu(self.convolution(x)).mean((2, 3))


class Doubler(nn.Module):
    """Twice the columns of rows."""

    def forward(self, x: Tensor) -> Tensor:
        """Rows times two."""
        return 2.0 * x


class Stripes(nn.Module):
    """How much the means of rows, and of columns, differ: two numbers that tell `shapes` apart."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Deviations of images, (n, 2)."""
        Stripes.calls += 1
        return torch.stack([x.mean(side).flatten(1).std(dim=1) for side in (3, 2)], dim=1)


def not_a_module() -> int:
    """Something else."""
    return 3


def shapes(num: int, seed: int, size: int = 12) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.str_]]:
    """Noisy pictures with bright rows (`rows`) or bright columns (`columns`)."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 80, size=(num, size, size))
    labels = np.array(["rows" if i % 2 else "columns" for i in range(num)])
    for i in range(num):
        lines = rng.choice(size // 2, 3, replace=False) * 2
        if i % 2:
            x[i, lines] += 150
        else:
            x[i, :, lines] += 150
    return x.astype(np.uint8), labels


def write_npz(path: Path, num: int, seed: int) -> Path:
    """An NPZ file of such pictures."""
    x, y = shapes(num, seed)
    np.savez(path, x=x, y=y)
    return path


def write_folder(root: Path, num: int, seed: int) -> Path:
    """The same as PNG files in a folder per class."""
    from PIL import Image

    x, y = shapes(num, seed)
    for i, (picture, label) in enumerate(zip(x, y, strict=True)):
        (root / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(root / label / f"{i:04d}.png")
    return root
