"""Online multi-kernel learning at a client: the dictionary, features of all kernels as one product, losses, gradients.

A dictionary holds N Gaussian kernels of different lengthscales, each with its own D random frequencies. Its features
are D^-1/2 [sin(W_i x), cos(W_i x)], so |z_i| = 1, and kernel i predicts f_i = theta_i · z_i(x). Coordinator and clients
draw the same frequencies from the seed and compare a fingerprint. How a client mixes the kernels, and which of them it
sends, is in `kernfed.methods.online.mixing`, the coordinator's step in `kernfed.methods.online.server_step`. Numpy
alone: a row is too little work for a GPU, and the coordinator does without torch.

Source: Ghari & Shen (2022), *Personalized online federated learning with multiple kernels*, equations (4), (6), (9).
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from kernfed import rng
from kernfed.arrays import Floats, Indices
from kernfed.errors import ConfigError
from kernfed.federation.messages.base import MaxLength, Range
from kernfed.methods.online.losses import LOSSES, Loss

MAX_KERNELS = 256
"""Most kernels of a dictionary: their numbers travel as bytes."""


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Kernels and the seed of their frequencies."""

    lengthscales: Annotated[tuple[float, ...], MaxLength(MAX_KERNELS), Range(1e-300, 1e300)]
    """One per kernel, in the units of rows of norm at most 1."""
    num_frequencies: Annotated[int, Range(1, 1_000_000)]
    """Random frequencies D of each kernel."""
    num_columns: Annotated[int, Range(1, 1_000_000)]
    """Input columns d."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Of the frequencies."""

    @property
    def num_kernels(self) -> int:
        """Kernels N."""
        return len(self.lengthscales)

    @property
    def num_features(self) -> int:
        """Features 2 D of each kernel."""
        return 2 * self.num_frequencies


def default_lengthscales(num_kernels: int = 51) -> tuple[float, ...]:
    """Lengthscales from 0.01 to 100, equally spaced in their logarithm; for 51 kernels 10^((2i - 52)/25), i = 1 … 51.

    Raises:
        ConfigError: There are no or too many kernels.

    Source: Ghari & Shen (2022), Section 4.
    """
    if not 1 <= num_kernels <= MAX_KERNELS:
        raise ConfigError(f"{num_kernels} kernels; want 1 to {MAX_KERNELS}")
    if num_kernels == 1:
        return (1.0,)
    return tuple(10.0 ** (4.0 * i / (num_kernels - 1) - 2.0) for i in range(num_kernels))


@functools.lru_cache(maxsize=4)
def draw(dictionary: Dictionary) -> Floats:
    """Draw the frequencies of all kernels, shape (N, D, d), read-only; the same bits everywhere.

    Kernel i has W_i ~ N(0, I/s_i²), independent of the other kernels'.

    Raises:
        ConfigError: There are no or too many kernels.

    Source: Rahimi & Recht (2007), Algorithm 1.
    """
    if not 1 <= dictionary.num_kernels <= MAX_KERNELS:
        raise ConfigError(f"{dictionary.num_kernels} kernels; want 1 to {MAX_KERNELS}")
    shape = (dictionary.num_kernels, dictionary.num_frequencies, dictionary.num_columns)
    omega = rng.stream(dictionary.seed, "online", "omega").normal(*shape)
    omega /= np.asarray(dictionary.lengthscales)[:, None, None]
    omega.flags.writeable = False
    return omega


@functools.lru_cache(maxsize=4)
def fingerprint(dictionary: Dictionary) -> str:
    """Compute a digest that two ends share exactly if they map features alike, 64 hexadecimal digits."""
    scales = ",".join(scale.hex() for scale in dictionary.lengthscales)
    facts = f"{scales};{dictionary.num_frequencies};{dictionary.num_columns};{dictionary.seed}"
    digest = hashlib.sha256(facts.encode())
    digest.update(np.ascontiguousarray(draw(dictionary), dtype="<f8").data)
    return digest.hexdigest()


def features(x: Floats, omega: Floats) -> Floats:
    """Map rows by all kernels at once: one product, then sines and cosines.

    Args:
        x: Rows, shape (n, d).
        omega: Frequencies, shape (N, D, d).

    Returns:
        Shape (n, N, 2 D): for each kernel the sines, then the cosines, over sqrt D.

    Source: Ghari & Shen (2022), equation (4).
    """
    num_kernels, num, d = omega.shape
    projection = (np.ascontiguousarray(x) @ omega.reshape(-1, d).T).reshape(len(x), num_kernels, num)
    z = np.empty((len(x), num_kernels, 2 * num))
    np.sin(projection, out=z[..., :num])
    np.cos(projection, out=z[..., num:])
    z *= 1.0 / math.sqrt(num)
    return z


def predictions(z: Floats, theta: Floats) -> Floats:
    """Compute every kernel's prediction f_i = theta_i · z_i.

    Args:
        z: Features, shape (..., N, 2 D).
        theta: Parameters, shape (N, 2 D).

    Returns:
        Shape (..., N).
    """
    f: Floats = np.einsum("...nd,nd->...n", z, theta)
    return f


def kernel_gradients(
    z: Floats,
    f: Floats,
    y: Floats,
    theta: Floats,
    kernels: Indices,
    *,
    loss: Loss = Loss.SQUARED,
    regularisation: float = 0.0,
) -> Floats:
    """Mean gradient over rows of loss(theta_i · z_i, y) + regularisation |theta_i|², for some of the kernels.

    Args:
        z: Features, shape (n, N, 2 D).
        f: Every kernel's predictions, shape (n, N).
        y: Targets, shape (n,).
        theta: Parameters, shape (N, 2 D).
        kernels: Which kernels, shape (B,).
        loss: The loss.
        regularisation: λ of the paper's equation (2), with Ω(t) = t.

    Returns:
        Shape (B, 2 D). Divided by the probability of the kernels' bin it is the step of equation (9).
    """
    slope = LOSSES[loss].slope(f.take(kernels, axis=1), y[:, None])
    gradient: Floats
    if len(y) == 1:
        gradient = z[0].take(kernels, axis=0)
        gradient *= slope[0][:, None]
    else:
        gradient = np.einsum("nb,nbd->bd", slope, z[:, kernels])
        gradient /= len(y)
    if regularisation:
        gradient += 2.0 * regularisation * theta[kernels]
    return gradient
