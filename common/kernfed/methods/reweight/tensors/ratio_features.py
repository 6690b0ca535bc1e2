"""Frozen maps of rows on which density ratios are fitted: random convolutions of images, and random projections.

A job's seed determines them, so all clients' points lie in one space. Ratios of p^te to p^tr are those of their images
under a map that loses nothing; where it does lose, the ratio is that of what is left.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from kernfed import rng
from kernfed.errors import DataError
from kernfed.methods.reweight.ratio_spec import FILTER_SIZE, GRID

NUM_FILTERS = 32
_BATCH = 1024


def random_convolutions(images: Tensor, seed: int) -> Tensor:
    """Answer of random filters, cut at 0 and averaged over each part of a grid.

    Args:
        images: Shape (n, channels, height, width), sides of at least `SMALLEST_SIDE`.
        seed: Of the filters, which have mean 0 and norm 1.

    Returns:
        Shape (n, NUM_FILTERS * GRID²), float64.

    Source: Saxe, Koh, Chen, Bhand, Suresh & Ng (2011), On random weights and unsupervised feature learning: which
    frequencies and shifts a random filter answers to is given by its architecture, whatever its weights.
    """
    channels = images.shape[1]
    drawn = rng.stream(seed, "ratio features", "filters").normal(NUM_FILTERS, channels * FILTER_SIZE**2)
    filters = torch.as_tensor(drawn, device=images.device)
    filters = filters - filters.mean(dim=1, keepdim=True)
    filters = filters / filters.norm(dim=1, keepdim=True)
    kernels = filters.reshape(NUM_FILTERS, channels, FILTER_SIZE, FILTER_SIZE)
    parts = [
        functional.adaptive_avg_pool2d(functional.conv2d(batch.double(), kernels).relu(), GRID).flatten(1)
        for batch in torch.split(images, _BATCH)
    ]
    return torch.cat(parts)


def project(rows: Tensor, num: int, seed: int) -> Tensor:
    """Project at random to fewer columns: lengths and angles are kept up to about sqrt(log n / num).

    Args:
        rows: Shape (n, d).
        num: Columns of the result, below d.
        seed: Of the directions, Gaussian.

    Returns:
        Shape (n, num), float64.

    Raises:
        DataError: There are no more than `num` columns.

    Source: Johnson & Lindenstrauss (1984).
    """
    if num >= rows.shape[1]:
        raise DataError(
            f"method.ratios.num_features is {num}, but there are only {rows.shape[1]} to project; give a lower number, "
            "or 0 for all of them"
        )
    drawn = rng.stream(seed, "ratio features", "directions").normal(rows.shape[1], num)
    return rows.double() @ torch.as_tensor(drawn / math.sqrt(num), device=rows.device)


def principal_axes(x: Tensor, num: int) -> Tensor:
    """Find the directions in which points differ most, shape (d, num), float64; the first is the foremost.

    Each has norm 1, and a positive number where it is greatest, so that the same points give the same directions.

    Args:
        x: Points, shape (n, d).
        num: At most d.
    """
    centred = x.double() - x.double().mean(dim=0)
    axes: Tensor = torch.linalg.eigh(centred.T @ centred / len(centred)).eigenvectors[:, -num:].flip(1)
    greatest = axes.gather(0, axes.abs().argmax(dim=0, keepdim=True))
    return axes * torch.where(greatest < 0, -1.0, 1.0)
