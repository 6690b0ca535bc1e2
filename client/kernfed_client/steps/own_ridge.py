"""A client's own ridge problem on its features: many methods ask for it, and every method compares itself with it."""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed import rng
from kernfed.arrays import Array, Integers
from kernfed.maths.choosing.ridge_search import ENOUGH_APART, RidgeSearch
from kernfed.maths.folds import FOLDS, deal, num_splits
from kernfed.maths.tasks import TASKS
from kernfed.tensors.arrays import to_array
from kernfed.tensors.ridge import LocalRidge
from kernfed.tensors.rows import FeatureRows, product
from kernfed_client.data.guards.feature_blocks import feature_block
from kernfed_client.data.local_job import LocalJob


def local_ridge(job: LocalJob, ridge: float, fold: int = 0) -> LocalRidge:
    """Ridge problem of this client, whose factor is kept as long as rows, weights, features and means stay.

    Args:
        job: With features mapped.
        ridge: The ridge.
        fold: Of the rows, from 1 on, that is left out where `fold_rows` has any; 0: none is.
    """
    if fold and len(fold_rows(job, fold)):
        return job.memo(_fold_key(fold), lambda: _problem(job, ridge, _others(job, fold))).at(ridge)
    return job.memo(ridge_key(ridge), lambda: _problem(job, ridge))


def forget_folds(job: LocalJob) -> None:
    """Drop the problems without a fold: a ridge was found."""
    for fold in range(1, FOLDS + 1):
        job.forget(_fold_key(fold))


def ridge_key(ridge: float) -> tuple[str, float]:
    """Under what `LocalJob.memo` keeps the ridge problem."""
    return "ridge", ridge


def own_weights(job: LocalJob, ridge: float) -> Array:
    """H_j⁻¹ c_j, shape (M, C), solved once."""
    return job.memo(("own weights", ridge), lambda: to_array(local_ridge(job, ridge).solve()))


def fold_rows(job: LocalJob, fold: int) -> Tensor:
    """Places of a fold's rows among the training rows, (k,): by the job's seed and this client's name.

    None where they are fewer than `policy.min_rows`: what differs by them would tell of too few.
    """
    found = (_folds(job) == fold - 1).nonzero()[:, 0]
    return found if len(found) >= max(1, job.file.policy.min_rows) and len(found) < job.num_rows else found[:0]


def held_out(job: LocalJob, weights: Tensor, rows: Tensor) -> tuple[float, int]:
    """Mean of |y - W'z|² over some training rows, at least one, of weights of shape (M, C); and how many are correct.

    The rows whose class has the largest score count, 0 where the task is not judged by them.
    """
    scores, targets = product(job.train_rows.some(rows), weights), job.y_train[rows]
    loss = float(torch.square(scores - targets).sum()) / len(rows)
    if TASKS[job.task].main_metric != "accuracy":
        return loss, 0
    mean = torch.from_numpy(job.target_mean).to(scores.device)
    return loss, int(((scores + mean).argmax(dim=1) == (targets + mean).argmax(dim=1)).sum())


def chosen_ridge(job: LocalJob, ridge: float) -> float:
    """The ridge of this client's own model, from `ridge` on by tens, by rows that it keeps apart for that.

    With fewer rows than choose one well it stays as it is: a baseline that is worse by chance is none.
    """

    def make() -> float:
        if job.num_rows < ENOUGH_APART:
            return ridge
        parted = []
        for i in range(num_splits(job.num_rows, ENOUGH_APART)):
            apart = _choice_folds(job) == i
            if bool(apart.any()) and not bool(apart.all()):
                rows = ((~apart).nonzero()[:, 0], apart.nonzero()[:, 0])
                parted.append((_problem(job, ridge, rows[0]), rows[1]))
        if not parted:
            return ridge
        search, going_on = RidgeSearch(ridge), True
        while going_on:
            found = [(len(a), *held_out(job, fit.at(search.ridge).solve(), a)) for fit, a in parted]
            loss = sum(num * loss for num, loss, _ in found) / sum(num for num, _, _ in found)
            going_on = search.tell(loss, sum(num - correct for num, _, correct in found))
        return search.best

    return job.memo(("own ridge", ridge), make)


def _problem(job: LocalJob, ridge: float, rows: Tensor | None = None) -> LocalRidge:
    """The ridge problem of the training rows, or of some of them."""
    z: FeatureRows = job.train_rows if rows is None else job.train_rows.some(rows)
    y = job.y_train if rows is None else job.y_train[rows]
    if job.row_weights is None:
        return LocalRidge(z, y, ridge, job.ridge_sums() if rows is None else None)
    # Rows times the roots of their weights: Z'Z/n and Z'Y/n become the weighted means.
    root = torch.tensor(job.row_weights, dtype=torch.float64, device=job.device).sqrt()
    root = root if rows is None else root[rows]
    return LocalRidge(z.times(root), y * root[:, None], ridge)


def _folds(job: LocalJob) -> Tensor:
    """The fold of each training row, from 0 on, shape (n,); copies, and rows of a block, together."""
    return job.memo("ridge folds", lambda: _dealt(job, feature_block(job)))


def _choice_folds(job: LocalJob) -> Tensor:
    """The same by smaller blocks, for a choice that is made here."""
    return job.memo("ridge choice folds", lambda: _dealt(job, job.data.small_block))


def _dealt(job: LocalJob, unit: Integers | None) -> Tensor:
    order = rng.stream(job.schema.seed, "ridge", job.client).permutation(job.num_rows)
    return torch.from_numpy(deal(order, job.unit if unit is None else unit, FOLDS)).to(job.device)


def _others(job: LocalJob, fold: int) -> Tensor:
    return (_folds(job) != fold - 1).nonzero()[:, 0]


def _fold_key(fold: int) -> tuple[str, int]:
    return "ridge without fold", fold
