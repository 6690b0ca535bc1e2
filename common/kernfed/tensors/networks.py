"""Many networks of one architecture computed at once: predictions, losses and gradient steps.

Each network is a row of an array of parameters; rows of data are the same for all. Dense layers are batched matrix
products, convolutions grouped ones, so that a client trains the models of a hundred targets in about the time of a few.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernfed import rng
from kernfed.arrays import Integers
from kernfed.errors import DivergedError
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.batches import batches
from kernfed.maths.tasks import TASKS
from kernfed.models.network_spec import (
    KERNEL_SIZE,
    NORM_EPSILON,
    NORM_RATE,
    Layer,
    NetworkKind,
    NetworkSpec,
    decayed_entries,
    layout,
    norm_entries,
)
from kernfed.tensors import threads
from kernfed.tensors.links import linked
from kernfed.tensors.modules import module_dtype, module_gradients, module_outputs, seeded
from kernfed.tensors.rows_behind import RowsBehind


def dtype_of(spec: NetworkSpec, module: nn.Module | None = None) -> torch.dtype:
    """Type that networks compute in: float64, but float32 for convolutions, which are slow in float64.

    A module of one's own computes in that of its parameters.
    """
    if module is not None:
        return module_dtype(module)
    return torch.float32 if spec.kind is NetworkKind.CNN else torch.float64


def outputs(
    spec: NetworkSpec,
    parameters: Tensor,
    x: Tensor,
    seen: list[Tensor] | None = None,
    inputs: list[Tensor] | None = None,
) -> Tensor:
    """Compute the last layer's outputs of every network, without a link function.

    Args:
        spec: The architecture.
        parameters: Shape (N, P).
        x: Rows, shape (n, d), of the same type and device.
        seen: Where given, batch normalisation uses the mean and variance of these rows, and appends them layer by
            layer, each of shape (N, 2 outputs); else it uses those among the parameters.
        inputs: Where given, takes what comes into each layer, and of a convolution what leaves it, for
            `kernfed.tensors.rows_behind`.

    Returns:
        Shape (N, n, C).
    """
    num = parameters.shape[0]
    layers = layout(spec)
    pieces = iter(torch.split(parameters, [size for layer in layers for size in layer.sizes], 1))
    hidden = x.expand(num, *x.shape)
    for i, layer in enumerate(layers):
        weights, bias, *norm = (next(pieces) for _ in layer.sizes)
        if layer.is_convolution:
            hidden = _convolution(layer, weights, bias, hidden, first=i == 0, image=spec.image)
            hidden = functional.max_pool2d(functional.relu(_normalise(norm, hidden, seen)), 2)
            if inputs is not None:
                inputs.append(hidden.detach())
            if not layers[i + 1].is_convolution:
                hidden = hidden.reshape(hidden.shape[0], num, -1).transpose(0, 1)
            continue
        if inputs is not None:
            inputs.append(hidden.detach() if i else x)
        hidden = torch.baddbmm(bias[:, None, :], hidden, weights.reshape(num, *layer.shape).transpose(1, 2))
        if i < len(layers) - 1:
            hidden = functional.relu(_normalise(norm, hidden, seen))
    return hidden


def scores(spec: NetworkSpec, parameters: Tensor, x: Tensor, module: nn.Module | None = None) -> Tensor:
    """Compute predictions in the units of encoded targets, shape (N, n, C): numbers, or probabilities of classes."""
    told = outputs(spec, parameters, x) if module is None else module_outputs(module, spec, parameters, x)
    return linked(TASKS[spec.task].link, told)


def losses(spec: NetworkSpec, parameters: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Compute the mean loss of every network, shape (N,).

    Args:
        spec: The architecture and the task, which says which loss.
        parameters: Shape (N, P).
        x: Rows, shape (n, d).
        y: Encoded targets, shape (n, C).
        weights: Of the rows, for each network, shape (N, n); unset: 1.
    """
    return _losses(spec, outputs(spec, parameters, x), y, weights)


def row_losses(spec: NetworkSpec, parameters: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Compute every network's loss of each row, shape (N, n); the arguments are those of `losses`."""
    return _row_losses(spec, outputs(spec, parameters, x), y)


def _losses(spec: NetworkSpec, found: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    of_rows = _row_losses(spec, found, y)
    return (of_rows if weights is None else of_rows * weights).mean(dim=1)


def _row_losses(spec: NetworkSpec, found: Tensor, y: Tensor) -> Tensor:
    if spec.task is LearningTask.REGRESSION:
        return (found - y).square().sum(dim=2)
    if spec.task is LearningTask.BINARY:
        both = functional.binary_cross_entropy_with_logits(found, y.expand_as(found), reduction="none")
        return both.sum(dim=2)
    return -(functional.log_softmax(found, dim=2) * y).sum(dim=2)


def gradients(
    spec: NetworkSpec,
    parameters: Tensor,
    x: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
    behind: RowsBehind | None = None,
    module: nn.Module | None = None,
) -> Tensor:
    """Compute the gradient of every network's loss, shape (N, P); the first arguments are those of `losses`.

    Where fewer rows stand behind a number of it than `behind` asks for (`kernfed.tensors.rows_behind`), it is 0.

    Batch normalisation is over these rows. For its means and variances among the parameters the result holds how far
    they are from those of the rows, so that a step of `NORM_RATE` against it follows them. Of a module of one's own it
    holds how the module moves its buffers; see `kernfed.tensors.modules`.
    """
    if module is not None:

        def loss(i: int, told: Tensor) -> Tensor:
            return _losses(spec, told[None], y, None if weights is None else weights[i : i + 1]).sum()

        with threads.suited(_largest(spec, x.shape[0])):
            return module_gradients(module, spec, parameters, x, loss, behind)
    wanted = parameters.detach().requires_grad_(True)
    seen: list[Tensor] | None = [] if spec.batch_norm else None
    # The networks share no parameter: the gradient of the sum holds the gradient of each.
    inputs: list[Tensor] | None = [] if behind is not None and behind.least > 1 else None
    with threads.suited(_largest(spec, parameters.shape[0] * x.shape[0])):
        told = outputs(spec, wanted, x, seen, inputs)
        (found,) = torch.autograd.grad(_losses(spec, told, y, weights).sum(), wanted)
        if behind is not None and inputs is not None:
            found = behind.kept(found, spec, parameters.detach(), inputs, told.detach())
    if seen:
        statistics = torch.from_numpy(norm_entries(spec)[1]).to(found.device)
        found[:, statistics] = parameters.detach()[:, statistics] - torch.cat(seen, dim=1).detach()
    return found


def _largest(spec: NetworkSpec, rows: int) -> int:
    """Numbers in the largest layer's outputs, of the rows of all networks; convolutions are large at any size."""
    if spec.is_own:
        deep = any(len(part.shape) > 2 for part in spec.parts)
        widest = max(spec.num_columns, *(part.shape[0] for part in spec.parts if part.shape))
        return threads.LARGE if deep else rows * widest
    if spec.kind is NetworkKind.CNN:
        return threads.LARGE
    return rows * max(spec.num_columns, *(layer.num_outputs for layer in layout(spec)))


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
    block: Integers | None = None,
    behind: RowsBehind | None = None,
    proximal: float = 0.0,
    module: nn.Module | None = None,
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
        weight_decay: λ of loss + (λ/2) |θ|², without biases and normalisation.
        seed: Of the orders.
        weights: Of the rows, for each network, shape (N, n); unset: 1.
        block: Number of each row's block, none of which a batch divides; unset: rows are drawn one by one.
        behind: A parameter behind whose gradient too few rows stand keeps its value in a step, as in `gradients`.
        proximal: μ of loss + (μ/2) |θ - θ_0|², θ_0 the networks that came, without means and variances.
        module: Of one's own, where the network is one.

    Returns:
        Shape (N, P).

    Raises:
        DivergedError: A network left the range of numbers.
    """
    current = parameters.clone()
    least = 1 if module is None else 2  # a row alone has no variance to normalise by
    drawn = batches(rng.stream(seed, "networks", "batches"), x.shape[0], batch_size, block, least)
    decay = torch.from_numpy(decayed_entries(spec)).to(parameters) * weight_decay
    pull = torch.from_numpy(~norm_entries(spec)[1]).to(parameters) * proximal
    rates = torch.full_like(pull, learning_rate)
    rates[torch.from_numpy(norm_entries(spec)[1]).to(x.device)] = NORM_RATE
    whole = batch_size == 0 or batch_size >= x.shape[0]
    with nullcontext() if module is None else seeded(seed):
        for _ in range(num_steps):
            rows_x, rows_y, rows_w = x, y, weights
            if not whole:
                rows = torch.from_numpy(next(drawn)).to(x.device)
                rows_x, rows_y, rows_w = x[rows], y[rows], None if weights is None else weights[:, rows]
            gradient = gradients(spec, current, rows_x, rows_y, rows_w, behind, module)
            if proximal:
                gradient = gradient + pull * (current - parameters)
            if spec.batch_norm:
                current = current - rates * (current * decay + gradient)
            else:
                current = current * (1.0 - learning_rate * decay) - learning_rate * gradient
    if not bool(torch.isfinite(current).all()):
        raise DivergedError(
            f"local steps of learning rate {learning_rate:g} on networks left the range of numbers: columns may lack a "
            "scale (data.standardise), or the job's steps are too long"
        )
    return current


def _convolution(
    layer: Layer, weights: Tensor, bias: Tensor, hidden: Tensor, *, first: bool, image: tuple[int, ...]
) -> Tensor:
    """Convolve; images are (n, N * channels, h, w) between layers."""
    num = weights.shape[0]
    kernels = weights.reshape(num * layer.shape[0], *layer.shape[1:])
    if first:  # all networks see the same images: one convolution with the kernels of all
        rows = hidden[0].reshape(hidden.shape[1], *image)
        found = functional.conv2d(rows, kernels, bias.reshape(-1), padding=KERNEL_SIZE // 2)
    else:
        found = functional.conv2d(hidden, kernels, bias.reshape(-1), groups=num)
    return found


def _normalise(norm: list[Tensor], hidden: Tensor, seen: list[Tensor] | None) -> Tensor:
    """Batch normalisation of images (n, N * channels, h, w) or rows (N, n, outputs); none without its parameters."""
    if not norm:
        return hidden
    scale, shift, mean, variance = norm
    num, size = scale.shape
    images = hidden.dim() == 4
    values = hidden.reshape(hidden.shape[0], num, size, -1) if images else hidden[..., None].transpose(0, 1)
    if seen is not None:  # (n, N, outputs, pixels)
        mean, variance = values.mean(dim=(0, 3)), values.var(dim=(0, 3), correction=0)
        seen.append(torch.cat([mean, variance], dim=1))
    factor = scale * torch.rsqrt(variance + NORM_EPSILON)
    found = values * factor[None, :, :, None] + (shift - mean * factor)[None, :, :, None]
    return found.reshape(hidden.shape) if images else found[..., 0].transpose(0, 1)
