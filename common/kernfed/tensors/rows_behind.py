"""How many rows stand behind each number of a network's gradient, and which numbers too few rows stand behind.

A gradient by a weight is a sum over rows: what its unit passes on, times what came into it. Where a unit is set off by
one row alone, the sum is this row. Whoever chooses networks can make such units, so a client keeps these numbers to
itself. How many rows stand behind a sum is their effective number, see `kernfed.maths.few.behind`.

The terms that count are those of the network, not of its residuals: rows that are already predicted well add little to
a gradient, and that is what training is for. So the size of a row at a unit is that of all paths from it to the
outputs, by the weights' absolute values and the units that the row sets off. A residual is at most 1 for classes, and
for numbers at most the output and the target together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernfed.federation.messages.data import LearningTask
from kernfed.maths.few.behind import wanted
from kernfed.maths.losses import MOST_MARGIN
from kernfed.models.network_spec import Layer, NetworkSpec, layout


@dataclass
class RowsBehind:
    """The rule of one client in one step, and what came of it."""

    least: int
    """Rows that must stand behind a number; 1: any number will do."""
    num_kept: float = 0.0
    """Numbers of gradients that were kept back, 0 in their place."""
    num: int = 0
    """Numbers of gradients in all."""

    @property
    def share(self) -> float:
        """Part of the numbers that were kept back."""
        return self.num_kept / max(1, self.num)

    def kept(
        self, gradient: Tensor, spec: NetworkSpec, parameters: Tensor, inputs: Sequence[Tensor], found: Tensor
    ) -> Tensor:
        """The gradient (N, P), 0 where fewer rows stand behind it; the other arguments are those of `enough_rows`."""
        return self.counted(enough_rows(spec, parameters, inputs, found, self.least), gradient)

    def counted(self, enough: Tensor, gradient: Tensor) -> Tensor:
        """The gradient (N, P), 0 where `enough` (N, P) says that too few rows stand behind it; counts these."""
        self.num_kept += float((~enough & (gradient != 0)).sum())
        self.num += gradient.numel()
        return torch.where(enough, gradient, 0.0)


def enough_rows(spec: NetworkSpec, parameters: Tensor, inputs: Sequence[Tensor], found: Tensor, least: int) -> Tensor:
    """Say behind which numbers of a gradient enough rows stand, bool (N, P).

    Enough are `least` rows, or a sixth of all rows where that is less (between two hidden layers a sixteenth), and at
    least two. None stand behind what is 0 in all rows. Where more than half of the rows are predicted with certainty,
    too few stand behind all of a network. Sizes of columns do not count: nobody chooses them, and those that differ in
    few rows were seen to before.

    Args:
        spec: The architecture.
        parameters: Of the networks, (N, P).
        inputs: What came into each layer, as `kernfed.tensors.networks.outputs` hands it out: (n, d) or (N, n, k), of a
            convolution what left it, (n, N * channels, height, width).
        found: Outputs of the last layer, (N, n, C).
        least: Number of rows.
    """
    with torch.no_grad():
        num = found.shape[1]
        rows, of_pairs = wanted(least, num)
        return _enough(spec, parameters, inputs, found, rows, of_pairs) & ~_sure(spec, found)[:, None]


def sure_rows(scores: Tensor) -> Tensor:
    """Say whether more than half of the rows are sure of their class, by log-odds (..., n, C); shape (...)."""
    if scores.shape[-1] == 1:
        margin = scores.abs()[..., 0]
    else:
        first = scores.topk(2, dim=-1).values
        margin = first[..., 0] - first[..., 1]
    return (margin > MOST_MARGIN).double().mean(dim=-1) > 0.5


def _sure(spec: NetworkSpec, found: Tensor) -> Tensor:
    if spec.task is LearningTask.REGRESSION:
        return torch.zeros(len(found), dtype=torch.bool, device=found.device)
    return sure_rows(found)


def _enough(
    spec: NetworkSpec, parameters: Tensor, inputs: Sequence[Tensor], found: Tensor, rows: float, of_pairs: float
) -> Tensor:
    num, layers, parts = len(parameters), layout(spec), []
    weights = torch.split(parameters, [sum(layer.sizes) for layer in layers], 1)
    # Of classes all outputs have one size at all rows: one column stands for them.
    size = (
        found.abs() + 1.0 if spec.task is LearningTask.REGRESSION else found.new_ones(1).expand(num, found.shape[1], 1)
    )
    for i in reversed(range(len(layers))):
        layer, given = layers[i], inputs[i]  # of units, none below 0; of the columns, which are not used
        if layer.is_convolution:
            enough = _behind_units(given.flatten(2).sum(dim=2).reshape(len(given), num, -1).transpose(0, 1), rows)
            of_weights = enough[:, :, None].expand(-1, -1, layer.num_weights // layer.num_outputs)
        else:
            enough = _behind_units(size, rows).expand(-1, layer.num_outputs)
            if i == 0:
                of_weights = enough[:, :, None].expand(-1, -1, layer.shape[1])
            elif size.stride(1) == 0:
                of_weights = _behind_units(given, rows)[:, None].expand(-1, layer.num_outputs, -1)
            else:
                passed, came = size.float().transpose(1, 2), given.float()
                least = rows if i == len(layers) - 1 else of_pairs
                of_weights = stand(passed @ came, passed.square() @ came.square(), least)
            if i and not layers[i - 1].is_convolution:
                size = _of_paths(layer, layers[i - 1], weights[i], weights[i - 1], size, given)
        normed = [enough, enough, torch.ones_like(enough), torch.ones_like(enough)] if layer.norm else []
        parts.append(torch.cat([of_weights.flatten(1), enough, *normed], dim=1))
    return torch.cat(parts[::-1], dim=1)


def _of_paths(
    layer: Layer, before: Layer, weights: Tensor, weights_before: Tensor, size: Tensor, given: Tensor
) -> Tensor:
    """Sizes of rows at the units of the layer before, (N, n, k), from those at a layer's, (N, n, u) or (N, n, 1)."""
    matrix = weights[:, : layer.num_weights].reshape(-1, *layer.shape).abs()
    if before.norm:  # the paths go through a scale
        scale = weights_before[:, before.num_weights + before.num_outputs :][:, : before.num_outputs]
        matrix = matrix * scale[:, None].abs()
    if size.shape[2] > 1:
        return (size @ matrix) * given.sign()
    summed = matrix.sum(dim=1, keepdim=True) * given.sign()
    return summed if size.stride(1) == 0 else summed * size


def _behind_units(size: Tensor, rows: float) -> Tensor:
    """Whether so many rows stand behind sums of sizes (N, n, k), shape (N, k)."""
    return stand(size.sum(dim=1), size.square().sum(dim=1), rows)


def stand(sums: Tensor, squares: Tensor, rows: float) -> Tensor:
    """Whether so many rows stand behind sums; none stand behind what left the range of numbers, at either end."""
    return (sums >= (rows * squares).sqrt()) & (squares > 0) & (squares < torch.inf)
