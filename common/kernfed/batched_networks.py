"""Many networks of one architecture computed at once: predictions, losses and gradient steps.

Each network is a row of an array of parameters; rows of data are the same for all. Dense layers are batched matrix
products, convolutions grouped ones, so that a client trains the models of a hundred targets in about the time of a few.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernfed import rng
from kernfed.errors import NumericalError
from kernfed.messages.data import LearningTask
from kernfed.network_spec import KERNEL_SIZE, Layer, NetworkKind, NetworkSpec, layout


def dtype_of(spec: NetworkSpec) -> torch.dtype:
    """Type that networks compute in: float64, but float32 for convolutions, which are slow in float64."""
    return torch.float32 if spec.kind is NetworkKind.CNN else torch.float64


def outputs(spec: NetworkSpec, parameters: Tensor, x: Tensor) -> Tensor:
    """Compute the last layer's outputs of every network, without a link function.

    Args:
        spec: The architecture.
        parameters: Shape (N, P).
        x: Rows, shape (n, d), of the same type and device.

    Returns:
        Shape (N, n, C).
    """
    num = parameters.shape[0]
    layers = layout(spec)
    pieces = torch.split(parameters, [size for layer in layers for size in (layer.num_weights, layer.num_outputs)], 1)
    hidden = x.expand(num, *x.shape)
    for i, layer in enumerate(layers):
        weights, bias = pieces[2 * i], pieces[2 * i + 1]
        if layer.is_convolution:
            hidden = _convolution(layer, weights, bias, hidden, first=i == 0, image=spec.image)
            if not layers[i + 1].is_convolution:
                hidden = hidden.reshape(hidden.shape[0], num, -1).transpose(0, 1)
            continue
        hidden = torch.baddbmm(bias[:, None, :], hidden, weights.reshape(num, *layer.shape).transpose(1, 2))
        if i < len(layers) - 1:
            hidden = functional.relu(hidden)
    return hidden


def scores(spec: NetworkSpec, parameters: Tensor, x: Tensor) -> Tensor:
    """Compute predictions in the units of encoded targets, shape (N, n, C): numbers, or probabilities of classes."""
    found = outputs(spec, parameters, x)
    if spec.task is LearningTask.REGRESSION:
        return found
    return torch.sigmoid(found) if spec.task is LearningTask.BINARY else torch.softmax(found, dim=2)


def losses(spec: NetworkSpec, parameters: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Compute the mean loss of every network, shape (N,).

    Args:
        spec: The architecture and the task, which says which loss.
        parameters: Shape (N, P).
        x: Rows, shape (n, d).
        y: Encoded targets, shape (n, C).
        weights: Of the rows, for each network, shape (N, n); unset: 1.
    """
    found = outputs(spec, parameters, x)
    if spec.task is LearningTask.REGRESSION:
        of_rows = (found - y).square().sum(dim=2)
    elif spec.task is LearningTask.BINARY:
        both = functional.binary_cross_entropy_with_logits(found, y.expand_as(found), reduction="none")
        of_rows = both.sum(dim=2)
    else:
        of_rows = -(functional.log_softmax(found, dim=2) * y).sum(dim=2)
    return (of_rows if weights is None else of_rows * weights).mean(dim=1)


def gradients(spec: NetworkSpec, parameters: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Compute the gradient of every network's loss, shape (N, P); the arguments are those of `losses`."""
    wanted = parameters.detach().requires_grad_(True)
    # The networks share no parameter: the gradient of the sum holds the gradient of each.
    (found,) = torch.autograd.grad(losses(spec, wanted, x, y, weights).sum(), wanted)
    return found


def train(
    spec: NetworkSpec,
    parameters: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    learning_rate: float,
    num_steps: int,
    batch_size: int = 0,
    weight_decay: float = 0.0,
    seed: int = 0,
    weights: Tensor | None = None,
) -> Tensor:
    """Take gradient steps from each network on the same rows.

    Args:
        spec: The architecture.
        parameters: Shape (N, P); not changed.
        x: Rows, shape (n, d).
        y: Encoded targets, shape (n, C).
        learning_rate: Step size.
        num_steps: Steps.
        batch_size: Rows per step; 0, or at least n: all rows. Each epoch visits the rows in a new order.
        weight_decay: λ of loss + (λ/2) |θ|².
        seed: Of the orders.
        weights: Of the rows, for each network, shape (N, n); unset: 1.

    Returns:
        Shape (N, P).

    Raises:
        NumericalError: A network left the range of numbers.
    """
    current = parameters.clone()
    order = rng.stream(seed, "networks", "batches")
    batches: list[Tensor] = []
    whole = batch_size == 0 or batch_size >= x.shape[0]
    for _ in range(num_steps):
        rows_x, rows_y, rows_w = x, y, weights
        if not whole:
            if not batches:
                shuffled = torch.from_numpy(order.permutation(x.shape[0])).to(x.device)
                batches = list(torch.split(shuffled, batch_size))[::-1]
            rows = batches.pop()
            rows_x, rows_y, rows_w = x[rows], y[rows], None if weights is None else weights[:, rows]
        gradient = gradients(spec, current, rows_x, rows_y, rows_w)
        current = current * (1.0 - learning_rate * weight_decay) - learning_rate * gradient
    if not bool(torch.isfinite(current).all()):
        raise NumericalError(
            f"networks trained with learning rate {learning_rate:g} left the range of numbers; lower "
            "method.learning_rate, or scale the columns (data.standardise)"
        )
    return current


def _convolution(
    layer: Layer, weights: Tensor, bias: Tensor, hidden: Tensor, *, first: bool, image: tuple[int, ...]
) -> Tensor:
    """Convolve, rectify and pool; images are (n, N * channels, h, w) between layers."""
    num = weights.shape[0]
    kernels = weights.reshape(num * layer.shape[0], *layer.shape[1:])
    if first:  # all networks see the same images: one convolution with the kernels of all
        rows = hidden[0].reshape(hidden.shape[1], *image)
        found = functional.conv2d(rows, kernels, bias.reshape(-1), padding=KERNEL_SIZE // 2)
    else:
        found = functional.conv2d(hidden, kernels, bias.reshape(-1), groups=num)
    return functional.max_pool2d(functional.relu(found), 2)
