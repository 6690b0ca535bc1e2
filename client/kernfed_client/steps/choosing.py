"""The client's half of a choice by training rows: sums over folds of them, under a map that is tried."""

from __future__ import annotations

from typing import Any

from kernfed.features.kernels import RANDOM_KERNELS
from kernfed.federation.messages.choosing import TrainingFoldSums, TrainingFoldSumsRequest
from kernfed_client.data.alone import AgreedLengthscale
from kernfed_client.data.fold_sums import fold_sums
from kernfed_client.data.guards.few_values import refuse_few_alike
from kernfed_client.data.guards.own_rows import refuse_lengthscale
from kernfed_client.data.local_job import LocalJob


def training_fold_sums(job: LocalJob, request: TrainingFoldSumsRequest) -> TrainingFoldSums:
    """Sums of features and targets over each fold of the training rows.

    Raises:
        JobStateMissingError: The rows were not scaled yet; with an exact map, not mapped.
        PolicyError: Random features of this lengthscale would tell of few rows.
        DataError: The sums do not fit into memory.
    """
    spec = request.features
    if spec.kernel in RANDOM_KERNELS:
        refuse_few_alike(job, spec.lengthscales)
        rule = job.memory(AgreedLengthscale)
        if rule.median and job.file.policy.min_rows > 1:
            refuse_lengthscale(rule.own, spec, request.step)
    found = fold_sums(job, spec, request.num_folds)
    return TrainingFoldSums(
        num_rows=job.num_rows,
        fold_rows=found.num_rows,
        second_moments=found.second_moments,
        target_moments=found.target_moments,
        target_squares=found.target_squares,
    )


STEPS: dict[type[Any], Any] = {TrainingFoldSumsRequest: training_fold_sums}
"""Steps of this module, by the request that they answer."""
