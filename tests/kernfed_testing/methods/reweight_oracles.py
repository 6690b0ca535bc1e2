"""Formulas of reweighting that only tests compute, to hold the product against."""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.methods.reweight.tensors.ratio_bounds import Bins, count_bins


def fixed_bins(train: Tensor, test: Tensor, test_weights: Tensor, centres: Tensor, min_rows: int = 1) -> Bins:
    """Bin points by the nearest of given centres, shape (M, d); the other arguments are those of `cluster_bins`."""
    nearest = [torch.cdist(part.double(), centres.double()).argmin(dim=1).cpu().numpy() for part in (train, test)]
    return count_bins(nearest[0], nearest[1], test_weights.cpu().numpy(), len(centres), min_rows)


def histogram_bins(train: Tensor, test: Tensor, test_weights: Tensor, num_bins: int, min_rows: int = 1) -> Bins:
    """Bin points of few columns by a grid of `num_bins` equal parts of each column's range.

    The grid has num_bins^d cells, of which only those that hold points are looked at.
    """
    x = torch.cat([train, test]).double()
    low, high = x.min(dim=0).values, x.max(dim=0).values
    width = torch.where(high > low, high - low, torch.ones_like(high))
    cells = ((x - low) / width * num_bins).long().clamp(0, num_bins - 1)
    _, index = torch.unique(cells, dim=0, return_inverse=True)
    places = index.cpu().numpy()
    weights = test_weights.cpu().numpy()
    return count_bins(places[: len(train)], places[len(train) :], weights, int(places.max()) + 1, min_rows)
