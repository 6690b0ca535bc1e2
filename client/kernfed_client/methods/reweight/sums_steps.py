"""The client's half of ratios to the mixture of all clients' rows: sums over folds, and weights by agreed functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernfed import rng
from kernfed.arrays import Array, Floats, Integers
from kernfed.errors import InvalidTensorError
from kernfed.features.spec import FeatureSpec
from kernfed.maths.folds import units
from kernfed.maths.triangles import pack
from kernfed.methods.reweight.messages import RatiosKept
from kernfed.methods.reweight.mixture_messages import (
    ClassCounts,
    ClassCountsRequest,
    Classified,
    ClassifyRequest,
    FoldSums,
    FoldSumsRequest,
    MixtureClassesRequest,
    MixtureRatiosRequest,
    PointMoments,
    PointMomentsRequest,
)
from kernfed.methods.reweight.ratio_spec import RatioFeatures
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.ridge import one_hot
from kernfed_client.data.guards.few_values import refuse_few_alike
from kernfed_client.data.guards.whole_folds import whole_folds
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight.points import drawn_points, point_choice, train_points
from kernfed_client.methods.reweight.state import Facts, Ratios, keep_ratios

_BLOCK_ROWS = 4096


def point_moments(job: LocalJob, request: PointMomentsRequest) -> PointMoments:
    """Sums over training rows, and over test points where they are as many as an aggregate must stand for."""
    x = train_points(job, request.features)
    points = _enough(job, drawn_points(job, request.features, request.num_points, request.seed))
    both = np.concatenate([x, points])
    return PointMoments(
        num_rows=job.num_rows, num_points=len(both), sums=both.sum(axis=0), second_moments=pack(both.T @ both)
    )


def fold_sums(job: LocalJob, request: FoldSumsRequest) -> FoldSums:
    """Sums of the features over each fold of training rows and of test points.

    A fold holds at least `policy.min_rows` rows or none: a client of few rows fills fewer folds. Which ones is drawn.
    """
    x, points = _projected(job, request.features, request.axes, request.num_points, request.seed)
    points = _enough(job, points)
    _, block, group = point_choice(job, request.num_points, request.seed)
    block, group = (None if of is None else of[: len(points)] for of in (block, group))
    rows = folds_of(job, x, request.num_folds, request.seed, "rows", job.block, job.data.train.group)
    point_folds = folds_of(job, points, request.num_folds, request.seed, "points", block, group)
    labels = torch.as_tensor(np.asarray(job.targets_train, np.int64)) if request.num_outputs else None
    seconds, targets, sums = [], [], []
    width = request.map.num_features + 1
    job.require((request.num_folds + 3) * width * width, "sums of the features over each fold")
    for fold in range(request.num_folds):
        gram = torch.zeros(width, width, dtype=torch.float64, device=job.device)
        moment = torch.zeros(width, request.num_outputs, dtype=torch.float64, device=job.device)
        total = torch.zeros(width, dtype=torch.float64, device=job.device)
        chosen = np.flatnonzero(rows == fold)
        for some in np.split(chosen, range(_BLOCK_ROWS, len(chosen), _BLOCK_ROWS)):
            z = features_with_constant(job, request.map, x[some])
            gram += z.T @ z
            if labels is not None:
                moment += z.T @ one_hot(labels[torch.as_tensor(some)], request.num_outputs).to(job.device)
        if (point_folds == fold).any():
            total = features_with_constant(job, request.map, points[point_folds == fold]).sum(dim=0)
        seconds.append(pack(gram.cpu().numpy()))
        targets.append(moment.cpu().numpy())
        sums.append(total.cpu().numpy())
    return FoldSums(
        num_rows=job.num_rows,
        fold_rows=np.bincount(rows, minlength=request.num_folds).astype(np.int64),
        second_moments=np.stack(seconds),
        target_moments=np.stack(targets),
        fold_points=np.bincount(point_folds, minlength=request.num_folds).astype(np.int64),
        point_sums=np.stack(sums),
    )


def mixture_ratios(job: LocalJob, request: MixtureRatiosRequest) -> RatiosKept:
    """Ratios of the training rows by the agreed function; none is below 0."""
    x = _on_axes(train_points(job, request.features), request.axes)
    coefficients = torch.tensor(np.asarray(request.coefficients, np.float64), device=job.device)
    if len(coefficients) != request.map.num_features + 1:
        raise InvalidTensorError(f"{request.step}: {len(coefficients)} coefficients do not fit the features and 1")
    parts = [
        (features_with_constant(job, request.map, x[start : start + _BLOCK_ROWS]) @ coefficients).cpu().numpy()
        for start in range(0, len(x), _BLOCK_ROWS)
    ]
    ratios = np.maximum(np.concatenate(parts), 0.0)
    num_cut = int((ratios > request.clip).sum()) if request.clip > 0 else 0
    if request.clip > 0:
        ratios = np.minimum(ratios, request.clip)
    facts = Facts(
        total=1.0,
        mean=float(ratios.mean()),
        num_cut=num_cut,
        uncovered=request.uncovered,
        held_out=request.held_out,
    )
    return _keep(job, request.variant, ratios, facts)


def mixture_classes(job: LocalJob, request: MixtureClassesRequest) -> RatiosKept:
    """Ratios of the training rows by their classes."""
    each = np.asarray(request.ratios, np.float64)
    if each.shape != (len(job.classes),) or (each < 0).any():
        raise InvalidTensorError(f"{request.step}: ratios of shape {each.shape} for {len(job.classes)} classes")
    ratios = each[np.asarray(job.targets_train, np.int64)]
    facts = Facts(
        total=1.0,
        mean=float(ratios.mean()),
        bound=float(each.max(initial=0.0)),
        uncovered=request.uncovered,
        note=request.note,
    )
    return _keep(job, request.variant, ratios, facts)


def class_counts(job: LocalJob, request: ClassCountsRequest) -> ClassCounts:
    """Training rows by class."""
    counts = np.bincount(np.asarray(job.targets_train, np.int64), minlength=request.num_outputs)
    return ClassCounts(num_rows=job.num_rows, counts=counts.astype(np.int64))


def classify(job: LocalJob, request: ClassifyRequest) -> Classified:
    """Predictions of the pooled classifiers: of each fold by the one that did not see it, of test points by all."""
    nothing = np.zeros((0, 0))
    x, points = _projected(job, request.features, nothing, request.num_points, request.seed)
    rows = folds_of(job, x, request.num_folds, request.seed, "rows", job.block, job.data.train.group)
    points = _enough(job, points)
    labels, num = np.asarray(job.targets_train, np.int64), len(job.classes)
    if request.weights.shape[1:] != (request.map.num_features + 1, num):
        raise InvalidTensorError(f"{request.step}: classifiers of shape {request.weights.shape} for {num} classes")
    confusion, predicted = np.zeros((num, num), np.int64), np.zeros(num, np.int64)
    job.require((len(x) + len(points)) * request.weights.shape[1], "the features of all points")
    z, zt = (features_with_constant(job, request.map, part) for part in (x, points))
    for fold, weights in enumerate(torch.tensor(np.asarray(request.weights, np.float64), device=job.device)):
        out = rows == fold
        guesses = (z[torch.as_tensor(out)] @ weights).argmax(dim=1).cpu().numpy()
        np.add.at(confusion, (guesses, labels[out]), 1)
        # Test points by the same models as the held-out rows, so that both have the same error rates.
        predicted += np.bincount((zt @ weights).argmax(dim=1).cpu().numpy(), minlength=num)
    return Classified(num_rows=job.num_rows, confusion=confusion, predicted=predicted)


def folds_of(
    job: LocalJob,
    rows: Floats,
    num_folds: int,
    seed: int,
    name: str,
    block: Integers | None,
    group: Integers | None = None,
) -> Integers:
    """Fold of each row, (n,): copies, groups and blocks in one, in each as many as a sum must stand for, or none."""
    order = rng.stream(seed, "reweight", "folds", name, job.client).permutation(len(rows))
    first = int(rng.stream(seed, "reweight", "first fold", name, job.client).integers(num_folds, 1)[0])
    unit = units(rows, group) if block is None else np.unique(block, return_inverse=True)[1]
    return whole_folds(order, unit, num_folds, job.file.policy.min_rows, first)


def refuse_few_in_sums(job: LocalJob) -> None:
    """Refuse random features of the columns, of which ratios and classifiers of all clients' rows are made.

    Raises:
        PolicyError: They would tell of few rows, since the columns have few values.
    """
    refuse_few_alike(job, remedy='method.scope = "own"')


def features_with_constant(job: LocalJob, spec: FeatureSpec, points: Floats) -> Tensor:
    """1 and the random features of points, float64 (n, M + 1).

    Raises:
        PolicyError: They would tell of few rows, since the columns have few values.
    """
    refuse_few_in_sums(job)
    made: FeatureMap = job.memo(("ratio map", spec), lambda: job.feature_map(spec, job.device))
    z = made(torch.tensor(points, dtype=torch.float64, device=job.device))
    return torch.cat([torch.ones_like(z[:, :1]), z], dim=1)


def _projected(
    job: LocalJob, features: RatioFeatures, axes: Array, num_points: int, seed: int
) -> tuple[Floats, Floats]:
    """Training rows and test points under the map, on the axes."""
    x, points = train_points(job, features), drawn_points(job, features, num_points, seed)
    return _on_axes(x, axes), _on_axes(points, axes)


def _on_axes(points: Floats, axes: Array) -> Floats:
    if axes.shape[1] == 0:
        return points
    if axes.shape[0] != points.shape[1]:
        raise InvalidTensorError(f"axes of shape {axes.shape} do not fit points of {points.shape[1]} columns")
    projected: Floats = points @ np.asarray(axes, np.float64)
    return projected


def _enough(job: LocalJob, points: Floats) -> Floats:
    return points if len(points) >= job.file.policy.min_rows else points[:0]


def _keep(job: LocalJob, variant: str, ratios: Floats, facts: Facts) -> RatiosKept:
    """Keep ratios as weights of mean 1; where all are 0, equal ones, which then count for nothing."""
    mean = float(ratios.mean())
    keep_ratios(job, variant, Ratios(ratios / mean if mean > 0 else np.ones(len(ratios)), facts))
    return RatiosKept(num_rows=job.num_rows, lacking="")


STEPS: dict[type[Any], Any] = {
    PointMomentsRequest: point_moments,
    FoldSumsRequest: fold_sums,
    MixtureRatiosRequest: mixture_ratios,
    MixtureClassesRequest: mixture_classes,
    ClassCountsRequest: class_counts,
    ClassifyRequest: classify,
}
"""Steps of this module, by the request that they answer."""
