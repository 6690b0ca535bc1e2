"""Arrays of messages as tensors on a device, and back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kernfed.arrays import Array, Floats
from kernfed.errors import InvalidTensorError


def to_array(tensor: Tensor) -> Floats:
    """A tensor as a float64 array in row-major order."""
    return np.ascontiguousarray(tensor.double().cpu().numpy())


def to_tensor(array: Array, want: tuple[int, ...], device: torch.device, step: str) -> Tensor:
    """An array of a request to a step as a float64 tensor.

    Raises:
        InvalidTensorError: Its shape is not the one wanted, (features, outputs).
    """
    check_shape(array.shape, want, step)
    return torch.tensor(array, dtype=torch.float64, device=device)


def check_shape(shape: tuple[int, ...], want: tuple[int, ...], step: str) -> None:
    """Check a shape that a request to a step states.

    Raises:
        InvalidTensorError: It is not the one wanted, (features, outputs).
    """
    if shape != want:
        raise InvalidTensorError(f"{step}: shape {shape}, but this client has {want} features and outputs")
