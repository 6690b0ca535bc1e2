"""The client's half of evaluation: measure models on this client's own test rows; only sums leave."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernfed.arrays import Array
from kernfed.errors import InvalidTensorError
from kernfed.federation.evaluation import measure
from kernfed.federation.messages.evaluation import EvaluateRequest, Evaluation
from kernfed.maths.tasks import TASKS
from kernfed.tensors.arrays import to_array
from kernfed.tensors.ridge import LocalRidge
from kernfed.tensors.rows import mean_of, product
from kernfed_client.data import kept_arrays
from kernfed_client.data.alone import alone
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.own_ridge import chosen_ridge, own_weights


@dataclass
class _Measured:
    """Kept by `LocalJob.memory`."""

    scores: dict[str, Array] | None = None
    """By model, shape (m, C) each; None: nobody looked yet for what an earlier life of the daemon left."""


def last_scores(job: LocalJob) -> dict[str, Array]:
    """Scores of the test rows that models had when they were measured last, by model, shape (m, C) each."""
    measured = job.memory(_Measured)
    if measured.scores is None:
        kept = kept_arrays.read(_path(job)) if job.durable else None
        measured.scores = {} if kept is None else kept[0]
    return measured.scores


def evaluate(job: LocalJob, request: EvaluateRequest) -> Evaluation:
    """Metric sums of the global model, and of the ridge models of this client's rows where asked."""
    want = (job.test_rows.shape[1], job.num_outputs)
    if request.weights.shape != want:
        raise InvalidTensorError(f"{request.step}: weights {request.weights.shape}, this client has {want}")
    scores = {}
    if request.include_global:
        scores["global"] = predict(job, request.weights)
    if request.local_ridge > 0:
        scores["local"] = _measured(_alone if request.alone else _as_agreed, job, request)
    if request.local_shared:
        scores["local-shared"] = _measured(_shared, job, request)
    return evaluated(job, scores)


def evaluated(job: LocalJob, scores: Mapping[str, Array]) -> Evaluation:
    """Metric sums of models on the test rows, whose scores the client keeps for `appraise`, over a restart too.

    Args:
        job: Of this client.
        scores: By model, in the units of the targets, shape (m, C) each.
    """
    targets = held_out_targets(job)
    sums = tuple(measure(model, job.task, found, targets) for model, found in scores.items())
    last = last_scores(job)
    last.update(scores)
    if job.durable and scores:
        with contextlib.suppress(OSError):  # a full disk: a restart would lose their errors, which the job then says
            kept_arrays.write(_path(job), last, durable=False)
    return Evaluation(num_test_rows=job.num_test_rows, sums=sums)


def predict(job: LocalJob, weights: Array) -> Array:
    """Scores of the test rows in the units of the targets, shape (m, C).

    Args:
        job: With features mapped, and centred where the job has an intercept.
        weights: On centred features, shape (M, C).
    """
    w = torch.tensor(weights, dtype=torch.float64, device=job.device)
    return to_array(product(job.test_rows, w)) + job.target_mean


def _path(job: LocalJob) -> Path:
    return job.folder / "setup" / "measured" / "scores.safetensors"  # goes when the job is over, like its setup


def _measured(scores: Callable[[LocalJob, EvaluateRequest], Array], job: LocalJob, request: EvaluateRequest) -> Array:
    """Scores of a model that nothing but these needs: without test rows it is not trained."""
    return scores(job, request) if job.num_test_rows else np.zeros((0, job.num_outputs))


def _as_agreed(job: LocalJob, request: EvaluateRequest) -> Array:
    return predict(job, own_weights(job, _ridge(job, request)))


def _alone(job: LocalJob, request: EvaluateRequest) -> Array:
    def make() -> Array:
        return _as_agreed(alone(job), request)

    return job.memo(("scores alone", request.local_ridge, request.choose_ridge), make)


def _ridge(job: LocalJob, request: EvaluateRequest) -> float:
    return chosen_ridge(job, request.local_ridge) if request.choose_ridge else request.local_ridge


def _shared(job: LocalJob, request: EvaluateRequest) -> Array:
    """Scores with the agreed scales and features, centred by this client's own means where the job centres."""

    def make() -> Array:
        rows, y, ridge = job.train_rows, job.y_train, _ridge(job, request)
        if not job.centred:
            return _as_agreed(job, request)
        z_mean, y_mean = mean_of(rows), y.mean(0)
        weights = LocalRidge(rows.minus(z_mean), y - y_mean, ridge).solve()
        return to_array(product(job.test_rows.minus(z_mean), weights) + y_mean) + job.target_mean

    return job.memo(("scores shared", request.local_ridge, request.choose_ridge), make)


def held_out_targets(job: LocalJob) -> Array:
    """Targets of the test rows, shape (m, C): values, 0/1, or one-hot; not centred."""
    return encode_targets(job, job.targets_test)


def encode_targets(job: LocalJob, targets: Array) -> Array:
    """Targets as columns, shape (n, C): values, 0/1, or one-hot, of values or class indices, (n,)."""
    return TASKS[job.task].encode(targets, job.classes)


STEPS: dict[type[Any], Any] = {EvaluateRequest: evaluate}
"""Steps of this module, by the request that they answer."""
