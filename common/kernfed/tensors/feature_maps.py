"""Maps rows to features whose inner products are, or approximate, a kernel; on CPU or CUDA."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kernfed.errors import DataError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec, Frequencies, draw_frequencies
from kernfed.maths.few.rows import FewProducts
from kernfed.maths.points.landmarks import landmark_kernel, landmark_root
from kernfed.tensors.kernels import gram

_BLOCK = 1 << 18
"""Numbers of a block of features on CPU: projection, cosine and scaling of a block find it in the cache."""


class FeatureMap:
    """A feature map on one device: call it on rows to get features.

    Attributes:
        spec: What it maps.
        num_features: Numbers per row M.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
        frequencies: Frequencies | None = None,
        few: FewProducts | None = None,
    ) -> None:
        """Place a map's frequencies on a device.

        Args:
            spec: The map.
            device: Where features are computed.
            dtype: Of inputs and features.
            frequencies: As `kernfed.features.spec.draw_frequencies` gives them for `spec`; drawn where not given.
            few: Products of a polynomial that are taken as 0, of columns by their lengthscales; unset: none.

        Raises:
            ConfigError: The specification contradicts itself.
        """
        drawn = draw_frequencies(spec) if frequencies is None else frequencies
        self.spec = spec
        self.num_features = spec.num_features
        self._omega = torch.as_tensor(drawn.omega, dtype=dtype, device=device)
        self._phase = torch.as_tensor(drawn.phase, dtype=dtype, device=device)
        self._few = few
        self._root: Tensor | None = None
        if spec.form is FeatureForm.NYSTROEM and spec.num_frequencies:
            root = landmark_root(spec, drawn.omega).matrix
            self._root = torch.as_tensor(root, dtype=torch.float64, device=device)
        self._lengthscales = torch.as_tensor(spec.lengthscales, dtype=dtype, device=device)

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Map rows.

        Args:
            x: Rows, shape (n, d), of the map's device and type.
            out: Where to write the features, shape (n, M), contiguous; new memory where not given.

        Returns:
            Features, shape (n, M). No other memory of that size is used, but by a Nyström map: twice as much.

        Raises:
            DataError: `x` has another number of columns than the map.
        """
        if x.ndim != 2 or x.shape[1] != self.spec.num_columns:
            raise DataError(
                f"rows of shape {tuple(x.shape)} do not fit a feature map of {self.spec.num_columns} columns"
            )
        x = x.contiguous()  # the order in memory decides the last bits of products on some processors
        if out is None:
            out = x.new_empty(x.shape[0], self.num_features)
        if self.spec.kernel is Kernel.LINEAR:
            return torch.div(x, self._lengthscales, out=out)
        if self.spec.kernel is Kernel.POLYNOMIAL2:
            return polynomial_features(x / self._lengthscales, out, self._few)
        if self._root is not None:  # in float64: the root may be 1e5, and raises the rounding of the kernel by as much
            kernel = gram(landmark_kernel(self.spec), x.double(), self._omega.double())
            out.copy_(kernel @ self._root)
            return out
        return random_features(x, self._omega, self._phase, self.spec.form, out)

    @property
    def block_rows(self) -> int:
        """Rows of a block such that mapping block by block gives the bits of mapping all rows; about 8 MiB on CPU."""
        if self._omega.device.type != "cpu":
            return max(1, (1 << 24) // self.num_features)
        step = _cached_rows(max(1, self.spec.num_frequencies or self.num_features))
        return step * max(1, (1 << 20) // (step * self.num_features))

    def blocks(self, x: Tensor, max_numbers: int = 1 << 24) -> Iterator[Tensor]:
        """Map rows piece by piece, in order, for sums over more rows than memory holds features of.

        Args:
            x: Rows, shape (n, d).
            max_numbers: Most numbers in a piece (at least one row is mapped).
        """
        for rows in torch.split(x, max(1, max_numbers // self.num_features)):
            yield self(rows)


def random_features(x: Tensor, omega: Tensor, phase: Tensor, form: FeatureForm, out: Tensor | None = None) -> Tensor:
    """Map points so that inner products approximate a shift-invariant kernel.

    Args:
        x: Points, shape (n, d).
        omega: Frequencies drawn from the kernel's spectral density, shape (D, d).
        phase: Uniform on (0, 2 pi), shape (D,); not used by the sine-cosine form.
        form: Cosine: sqrt(2/D) cos(W x + b). Half-cosine: D^-1/2 cos(W x + b). Sine-cosine: D^-1/2 [sin, cos](W x).
        out: Where to write, shape (n, M), contiguous.

    Returns:
        Features, shape (n, D), or (n, 2 D) for sine-cosine.

    Source: Rahimi & Recht (2007), Algorithm 1; half-cosine: FedNewton paper, Section 2.
    """
    num = omega.shape[0]
    paired = form is FeatureForm.SINE_COSINE
    if out is None:
        out = x.new_empty(x.shape[0], 2 * num if paired else num)
    scale = math.sqrt((2.0 if form is FeatureForm.COSINE else 1.0) / num)
    step = _cached_rows(num) if x.device.type == "cpu" else max(1, x.shape[0])
    for rows, z in zip(torch.split(x, step), torch.split(out, step), strict=True):
        if paired:
            projection = rows @ omega.T
            torch.sin(projection, out=z[:, :num])
            torch.cos(projection, out=z[:, num:])
        else:
            torch.addmm(phase, rows, omega.T, out=z)
            z.cos_()
        z.mul_(scale)
    return out


def _cached_rows(num: int) -> int:
    """Rows of a block of `num` numbers that the processor's cache holds."""
    return max(16, _BLOCK // num)


def polynomial_features(x: Tensor, out: Tensor | None = None, few: FewProducts | None = None) -> Tensor:
    """Map points so that inner products are exactly (x·x' + 1)².

    Args:
        x: Points, shape (n, d).
        out: Where to write, shape (n, (d+1)(d+2)/2).
        few: Products x_i x_j of which (x_i - a)(x_j - b) is taken as 0: a x_j + b x_i - a b stands for them.

    Returns:
        With u = (1, x): the products u_i u_j, i <= j, in row order, those with i < j times sqrt 2. So the first
        column is the constant 1.
    """
    n, d = x.shape
    u = torch.cat([x.new_ones(n, 1), x], dim=1)
    if out is None:
        out = x.new_empty(n, (d + 1) * (d + 2) // 2)
    start = 0
    for i in range(d + 1):
        part = out[:, start : start + d + 1 - i]
        torch.mul(u[:, i:], u[:, i : i + 1], out=part)
        if few is not None and i:
            for j in map(int, np.flatnonzero(few.few[i - 1])):
                a, b = float(few.a[i - 1, j]), float(few.b[i - 1, j])
                part[:, j - i + 1] = a * x[:, j] + b * x[:, i - 1] - a * b
        part[:, 1:] *= math.sqrt(2.0)
        start += d + 1 - i
    return out
