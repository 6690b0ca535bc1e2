"""Features of a client's rows as a method reads them: block by block, some rows, or all at once.

Sums over rows need no more than a block in memory. How many rows a block has follows from the number of features alone,
so a sum has the same bits whatever the memory limit is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from kernfed.errors import DataError
from kernfed.tensors.feature_maps import FeatureMap

SMALL = 1 << 18
"""Numbers of features (2 MiB) up to which they are kept once they are computed, whatever the limit."""
_BLOCK = 1 << 20


class FeatureRows(Protocol):
    """Features Z of rows, shape (n, M)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows n and features M."""

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers."""

    @property
    def device(self) -> torch.device:
        """Where they are computed."""

    def blocks(self) -> Iterator[Tensor]:
        """All rows in their order, shape (b, M) each; not to be changed."""

    def whole(self) -> Tensor:
        """All rows at once, shape (n, M); not to be changed.

        Raises:
            DataError: They exceed the memory that they may take.
        """

    def take(self, index: Tensor) -> Tensor:
        """Some rows, shape (len(index), M)."""

    def some(self, index: Tensor) -> FeatureRows:
        """Some rows, by their places, (k,), to be read in the same ways."""

    def minus(self, mean: Tensor) -> FeatureRows:
        """The same rows with a mean, shape (M,), subtracted."""

    def times(self, scale: Tensor) -> FeatureRows:
        """The same rows, each times a number, shape (n,)."""


class KeptRows:
    """Features that lie in memory."""

    def __init__(self, z: Tensor) -> None:
        """Take features, shape (n, M); they are kept, not copied."""
        self._z = z

    @property
    def shape(self) -> tuple[int, int]:
        """See `FeatureRows`."""
        return self._z.shape[0], self._z.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """See `FeatureRows`."""
        return self._z.dtype

    @property
    def device(self) -> torch.device:
        """See `FeatureRows`."""
        return self._z.device

    def blocks(self) -> Iterator[Tensor]:
        """See `FeatureRows`."""
        yield from torch.split(self._z, max(64, _BLOCK // max(1, self._z.shape[1])))

    def whole(self) -> Tensor:
        """See `FeatureRows`."""
        return self._z

    def take(self, index: Tensor) -> Tensor:
        """See `FeatureRows`."""
        return self._z[index]

    def some(self, index: Tensor) -> KeptRows:
        """See `FeatureRows`."""
        return KeptRows(self._z[index])

    def minus(self, mean: Tensor) -> KeptRows:
        """See `FeatureRows`."""
        return KeptRows(self._z - mean)

    def times(self, scale: Tensor) -> KeptRows:
        """See `FeatureRows`."""
        return KeptRows(self._z * scale[:, None])


class MappedRows:
    """Features that are computed from the rows again whenever they are read, unless they are few.

    What is kept does not hang on the limit, which only refuses: mapping some rows alone may give other last bits.
    """

    def __init__(
        self,
        x: Tensor,
        feature_map: FeatureMap,
        *,
        mean: Tensor | None = None,
        scale: Tensor | None = None,
        limit: Callable[[], int] | None = None,
    ) -> None:
        """Take rows; nothing is computed yet.

        Args:
            x: Rows, shape (n, d), of the map's device and type.
            feature_map: Maps them.
            mean: Subtracted from each row's features, shape (M,).
            scale: What each row's features are then multiplied by, shape (n,).
            limit: Bytes that `whole` may take; asked when it matters. Unset: any number.
        """
        self._x = x.contiguous()
        self._map = feature_map
        self._mean = mean
        self._scale = scale
        self._limit = limit
        self._kept: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """See `FeatureRows`."""
        return self._x.shape[0], self._map.num_features

    @property
    def dtype(self) -> torch.dtype:
        """See `FeatureRows`."""
        return self._x.dtype

    @property
    def device(self) -> torch.device:
        """See `FeatureRows`."""
        return self._x.device

    def blocks(self) -> Iterator[Tensor]:
        """See `FeatureRows`."""
        step = self._map.block_rows
        self._keep_few()
        if self._kept is not None:
            yield from torch.split(self._kept, step)
            return
        for start in range(0, self._x.shape[0], step):
            yield self._features(slice(start, start + step))

    def whole(self) -> Tensor:
        """See `FeatureRows`."""
        if self._kept is not None:
            return self._kept
        n, m = self.shape
        self._check(n * m * self._x.element_size())
        try:
            return self._features(slice(0, n))
        except RuntimeError as err:  # torch's way to say that memory is short, on CPU and on CUDA
            raise DataError(_short(n, m, n * m * self._x.element_size(), f"{self.device} has")) from err

    def take(self, index: Tensor) -> Tensor:
        """See `FeatureRows`."""
        self._keep_few()
        return self._features(index) if self._kept is None else self._kept[index]

    def some(self, index: Tensor) -> MappedRows:
        """See `FeatureRows`."""
        scale = None if self._scale is None else self._scale[index]
        return MappedRows(self._x[index], self._map, mean=self._mean, scale=scale, limit=self._limit)

    def minus(self, mean: Tensor) -> MappedRows:
        """See `FeatureRows`."""
        total = mean if self._mean is None else self._mean + mean
        return MappedRows(self._x, self._map, mean=total, scale=self._scale, limit=self._limit)

    def times(self, scale: Tensor) -> MappedRows:
        """See `FeatureRows`."""
        total = scale if self._scale is None else self._scale * scale
        return MappedRows(self._x, self._map, mean=self._mean, scale=total, limit=self._limit)

    def _features(self, rows: slice | Tensor) -> Tensor:
        z = self._map(self._x[rows])
        if self._mean is not None:
            z.sub_(self._mean)
        if self._scale is not None:
            z.mul_(self._scale[rows, None])
        return z

    def _keep_few(self) -> None:
        if self._kept is None and self._x.shape[0] * self._map.num_features <= SMALL:
            self._kept = self._features(slice(None))

    def _check(self, needed: int) -> None:
        if self._limit is not None and needed > 8 * SMALL and needed > (limit := self._limit()):
            raise DataError(_short(*self.shape, needed, f"the {limit / 2**30:.2f} GiB that may be used here"))


def mean_of(rows: FeatureRows, weights: Tensor | None = None) -> Tensor:
    """Compute the mean of the rows, shape (M,), by their weights (n,) where given; NaN of no rows."""
    total = torch.zeros(rows.shape[1], dtype=rows.dtype, device=rows.device)
    start = 0
    for z in rows.blocks():
        total += z.sum(0) if weights is None else weights[start : start + len(z)] @ z
        start += len(z)
    return total / (rows.shape[0] if weights is None else weights.sum())


def product(rows: FeatureRows, w: Tensor) -> Tensor:
    """Compute Z W, shape (n, C), for W of shape (M, C)."""
    parts = [z @ w for z in rows.blocks()]
    return torch.cat(parts) if parts else w.new_zeros(0, w.shape[1])


def _short(num_rows: int, num_features: int, needed: int, room: str) -> str:
    return (
        f"{num_features} features of each of {num_rows} rows need {needed / 2**30:.2f} GiB at once, more than {room}; "
        "lower features.num_frequencies in the job, raise max_memory_bytes of the client file, or use a larger machine"
    )
