"""A client's own ridge problem on its features: many methods ask for it, and every method compares itself with it."""

from __future__ import annotations

import torch

from kernfed.arrays import Array
from kernfed.tensors.arrays import to_array
from kernfed.tensors.ridge import LocalRidge
from kernfed_client.data.local_job import LocalJob


def local_ridge(job: LocalJob, ridge: float) -> LocalRidge:
    """Ridge problem of this client, whose factor is kept as long as rows, weights, features and means stay."""

    def make() -> LocalRidge:
        if job.row_weights is None:
            return LocalRidge(job.train_rows, job.y_train, ridge)
        # Rows times the roots of their weights: Z'Z/n and Z'Y/n become the weighted means.
        root = torch.tensor(job.row_weights, dtype=torch.float64, device=job.device).sqrt()
        return LocalRidge(job.train_rows.times(root), job.y_train * root[:, None], ridge)

    return job.memo(ridge_key(ridge), make)


def ridge_key(ridge: float) -> tuple[str, float]:
    """Under what `LocalJob.memo` keeps the ridge problem."""
    return "ridge", ridge


def own_weights(job: LocalJob, ridge: float) -> Array:
    """H_j⁻¹ c_j, shape (M, C), solved once."""
    return job.memo(("own weights", ridge), lambda: to_array(local_ridge(job, ridge).solve()))
