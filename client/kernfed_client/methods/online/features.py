"""Features of a stream's rows by all kernels: of a table in blocks, ahead of their turn; of a live stream row by row.

A block's features do not depend on what was learned, so one product and one pass of sines serve many rounds. Blocks
begin at fixed rows: a client that was restarted computes the same block, and so the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from kernfed.arrays import Floats
from kernfed.methods.online import dictionary as online
from kernfed_client.data.local_job import LocalJob
from kernfed_client.streams.streams import Stream, TableStream

BLOCK_ROWS = 32
_MAX_NUMBERS = 1 << 22


class RowFeatures:
    """Features of rows, (n, N, 2 D)."""

    def __init__(self, omega: Floats, stream: Stream, scaled: Callable[[Floats], Floats], job: LocalJob) -> None:
        self._omega = omega
        self._table = stream if isinstance(stream, TableStream) else None
        self._scaled = scaled
        self._job = job
        num_kernels, num, _ = omega.shape
        self._rows = max(1, min(BLOCK_ROWS, _MAX_NUMBERS // (2 * num * num_kernels)))
        self._block: tuple[int, Floats] | None = None

    def of_row(self, x: Floats) -> Floats:
        """Of one scaled row, (N, 2 D)."""
        z: Floats = online.features(x[None], self._omega)[0]
        return z

    def of_rows(self, x: Sequence[Floats], numbers: Sequence[int]) -> Floats:
        """Of rows of a table, which are known by their numbers, or of scaled rows, whose number is -1."""
        if len(x) == 1:
            return self._one(x[0], numbers[0])
        return np.concatenate([self._one(row, number) for row, number in zip(x, numbers, strict=True)])

    def _one(self, x: Floats, number: int) -> Floats:
        if number < 0 or self._table is None:
            return online.features(x[None], self._omega)
        start = number - number % self._rows
        if self._block is None or self._block[0] != start:
            rows = self._scaled(self._table.x[start : start + self._rows])
            self._block = start, self._of_block(rows)
        at = number - start
        return self._block[1][at : at + 1]

    def _of_block(self, rows: Floats) -> Floats:
        """As `kernfed.methods.online.dictionary.features`, by torch: its sines take a third of the time, and CUDA
        helps.
        """
        num_kernels, num, d = self._omega.shape
        omega = self._job.memo(
            ("online omega", id(self._omega)), lambda: torch.tensor(self._omega.reshape(-1, d), device=self._job.device)
        )
        projection = (torch.from_numpy(rows).to(self._job.device) @ omega.T).reshape(len(rows), num_kernels, num)
        z = projection.new_empty(len(rows), num_kernels, 2 * num)
        torch.sin(projection, out=z[..., :num])
        torch.cos(projection, out=z[..., num:])
        z.mul_(1.0 / num**0.5)
        found: Floats = z.cpu().numpy()
        return found
