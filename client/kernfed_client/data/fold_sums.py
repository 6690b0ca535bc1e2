"""Sums over folds of a client's training rows under a feature map: what a choice by rows kept apart needs of them."""

from __future__ import annotations

import numpy as np
import torch

from kernfed import rng
from kernfed.arrays import Floats, Integers
from kernfed.features.kernels import RANDOM_KERNELS
from kernfed.features.spec import FeatureSpec
from kernfed.maths.choosing.by_folds import FoldSums
from kernfed.maths.tasks import TASKS
from kernfed.maths.triangles import pack
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.shifted_gram import GramSum
from kernfed_client.data.guards.feature_blocks import feature_block
from kernfed_client.data.guards.whole_folds import whole_folds
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.mapped import few_products_of

_BLOCK_ROWS = 4096


def fold_sums(job: LocalJob, spec: FeatureSpec, num_folds: int) -> FoldSums:
    """Sums over the training rows of each fold, of features that are not centred; test rows have no part in it.

    Args:
        job: With rows scaled; where the map is exact, mapped.
        spec: The map.
        num_folds: F.

    Raises:
        JobStateMissingError: It is not.
        DataError: The sums do not fit into memory.
    """
    x, y = job.x_train, TASKS[job.task].encode(job.targets_train, job.classes)
    fold = _folds(job, spec, num_folds)
    width = spec.num_features + 1
    job.require((num_folds + 3) * width**2, "sums of the features over folds")
    made = job.feature_map(spec, job.device, few_products_of(x, spec, job.fewest_apart[0]))
    return sums_by_fold(made, x, y, fold, num_folds, job.device)


def sums_by_fold(
    made: FeatureMap,
    x: Floats,
    y: Floats,
    fold: Integers,
    num_folds: int,
    device: torch.device | str = "cpu",
) -> FoldSums:
    """Sums over the rows of each fold.

    Args:
        made: The map, with M features.
        x: Rows, (n, P).
        y: Targets, (n, C).
        fold: Of each row, from 0 on, (n,).
        num_folds: F.
        device: That of the map.
    """
    width = made.num_features + 1
    seconds, targets, squares = [], [], []
    for number in range(num_folds):
        gram = torch.zeros(width, width, dtype=torch.float64, device=device)
        total = GramSum.onto(gram)
        moment = torch.zeros(width, y.shape[1], dtype=torch.float64, device=device)
        chosen = np.flatnonzero(fold == number)
        for rows in np.split(chosen, range(_BLOCK_ROWS, len(chosen), _BLOCK_ROWS)):
            z = made(torch.tensor(x[rows], dtype=torch.float64, device=device))
            z = torch.cat([torch.ones_like(z[:, :1]), z], dim=1)
            total.add(z)
            moment.addmm_(z.T, torch.tensor(y[rows], device=device))
        seconds.append(pack(gram.cpu().numpy()))
        targets.append(moment.cpu().numpy())
        squares.append(float(np.square(y[chosen]).sum()))
    counts = np.bincount(fold, minlength=num_folds).astype(np.int64)
    return FoldSums(counts, np.stack(seconds), np.stack(targets), np.array(squares))


def _folds(job: LocalJob, spec: FeatureSpec, num_folds: int) -> Integers:
    """The fold of each training row, (n,), by the job's seed and this client's name, whatever the map is."""
    unit = job.unit
    if spec.kernel not in RANDOM_KERNELS and (joined := feature_block(job)) is not None:
        unit = joined
    order = rng.stream(job.schema.seed, "ridge", job.client).permutation(job.num_rows)
    first = int(rng.stream(job.schema.seed, "ridge", "first fold", job.client).integers(num_folds, 1)[0])
    return whole_folds(order, np.unique(unit, return_inverse=True)[1], num_folds, job.file.policy.min_rows, first)
