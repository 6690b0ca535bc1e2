"""The client's half of the choice between two models: their weighted losses on rows that neither was fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernfed.arrays import Array, Floats, Integers
from kernfed.errors import InvalidTensorError
from kernfed.maths.folds import sums_of_deviations
from kernfed.methods.reweight.choice_messages import Compared, CompareLinearRequest, CompareNetworksRequest
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight.state import ratios_of, rows_apart
from kernfed_client.models.small_network import OwnNetwork, module_of
from kernfed_client.steps.evaluation import encode_targets, predict


def compare_linear(job: LocalJob, request: CompareLinearRequest) -> Compared:
    """Losses of two linear models."""
    want = (2, job.z_train.shape[1], job.num_outputs)
    if request.weights.shape != want:
        raise InvalidTensorError(f"{request.step}: models of shape {request.weights.shape}, this client has {want}")
    apart = rows_apart(job)
    z = job.z_train[torch.as_tensor(apart)].cpu().numpy() + job.feature_mean
    scores, tested = [], []
    for weights, of, target in zip(request.weights, request.feature_means, request.target_means, strict=True):
        w, mean, offset = (np.asarray(array, np.float64) for array in (weights, of, target))
        scores.append((z - mean) @ w + offset)
        if _num_tested(job):
            tested.append(predict(job, w) + (job.feature_mean - mean) @ w + offset)
    return _compared(job, request.variant, apart, scores, tested)


def compare_networks(job: LocalJob, request: CompareNetworksRequest) -> Compared:
    """Losses of two networks, in the units of the targets, or of the classes' probabilities."""
    module = module_of(job, request.network)
    apart = rows_apart(job)
    mean, deviation = (np.asarray(array, np.float64) for array in (request.scale.mean, request.scale.deviation))
    parameters = np.array(request.networks, dtype=np.float64)
    networks = [OwnNetwork(request.network, p, mean, deviation, module) for p in parameters]
    scores = [network.scores(job, job.x_train[apart]) for network in networks] if apart.any() else []
    tested = [network.scores(job) for network in networks] if _num_tested(job) else []
    return _compared(job, request.variant, apart, scores, tested)


def _compared(job: LocalJob, variant: str, apart: Array, scores: list[Floats], tested: list[Array]) -> Compared:
    """Losses on the rows kept apart, and how far the models lie apart there and on the test rows' inputs."""
    count = int(apart.sum())
    if count == 0:
        return Compared(num_rows=job.num_rows, num_apart=0, losses=np.zeros(2), square=0.0)
    y = encode_targets(job, job.targets_train[apart])
    weights = ratios_of(job, variant).weights[apart]
    losses = np.stack([weights * np.square(found - y).sum(axis=1) for found in scores])
    square = mean_square(losses[0] - losses[1], job.together(np.hstack([job.x_train[apart], y]), apart))
    return Compared(
        num_rows=job.num_rows,
        num_apart=count,
        losses=losses.mean(axis=1),
        square=square,
        apart_distance=float((weights * np.square(scores[0] - scores[1]).sum(axis=1)).mean()),
        test_distance=float(np.square(tested[0] - tested[1]).sum(axis=1).mean()) if tested else 0.0,
        num_points=_num_tested(job),
    )


def _num_tested(job: LocalJob) -> int:
    """Test rows on whose inputs models are compared: all, or none where they are fewer than an aggregate stands for."""
    return job.num_test_rows if job.num_test_rows >= job.file.policy.min_rows else 0


def mean_square(differences: Floats, unit: Integers) -> float:
    """Mean of squares from which (it less the squared mean) over the rows is the variance of the mean.

    Copies of a row are no further rows: their deviations from the mean count as one, their sum.

    Args:
        differences: Of each row, shape (n,).
        unit: Number of each row's content, shape (n,).
    """
    if len(np.unique(unit)) == len(unit):
        return float(np.square(differences).mean())
    sums = sums_of_deviations(differences[None], unit)
    return float(differences.mean()) ** 2 + float(np.square(sums).sum()) / len(differences)


STEPS: dict[type[Any], Any] = {CompareLinearRequest: compare_linear, CompareNetworksRequest: compare_networks}
"""Steps of this module, by the request that they answer."""
