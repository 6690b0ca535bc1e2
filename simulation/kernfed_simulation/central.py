"""The pooled reference: the same model trained on all rows in one place, which a real federation cannot have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernfed.arrays import Array
from kernfed.errors import DataError
from kernfed.federation.evaluation import measure
from kernfed.federation.events import RoundMetrics
from kernfed.methods import rooms
from kernfed.methods.shared_settings import ridge_of
from kernfed.tensors.arrays import to_array
from kernfed.tensors.ridge import LocalRidge
from kernfed.tensors.shifted_gram import ShiftedGram
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.evaluation import held_out_targets, predict
from kernfed_client.steps.own_ridge import ridge_key
from kernfed_server.jobs.evaluation import collect

MODEL = "central"

Central = Callable[[Mapping[str, LocalJob], Any], RoundMetrics]
"""(clients prepared alike, the method's settings) -> metrics of the pooled reference at each, and on all test rows."""


def central_models() -> Mapping[str, Central]:
    """The reference of every method that has one, by the method's name."""
    return rooms.merged("kernfed_simulation.methods", "central", "CENTRAL")


def central_weights(jobs: Mapping[str, LocalJob], ridge: float) -> Array:
    """Solve (Z'Z/n + ridge I) W = Z'Y/n over all clients' training rows, shape (M, C).

    Args:
        jobs: Prepared alike: the same features, scales and means.
        ridge: The ridge.

    Raises:
        DataError: There is no client.
        NotPositiveDefiniteError: The pooled matrix is singular to working precision.
    """
    if not jobs:
        raise DataError("no client is left to pool rows of")
    first = next(iter(jobs.values()))
    num_features, num_outputs = first.train_rows.shape[1], first.num_outputs
    gram = torch.zeros(num_features, num_features, dtype=torch.float64, device=first.device)
    moment = torch.zeros(num_features, num_outputs, dtype=torch.float64, device=first.device)
    for name in sorted(jobs):
        _problem(jobs[name], ridge).add_sums(gram, moment)
    num_rows = sum(job.num_rows for job in jobs.values())
    pooled = ShiftedGram(gram.div_(num_rows))
    return to_array(pooled.solve(moment.div_(num_rows), ridge, "pooled Hessian"))


def _problem(job: LocalJob, ridge: float) -> LocalRidge:
    """The client's ridge problem: that of the job's rounds if it had one, whose sums are made already."""
    kept = job.kept(ridge_key(ridge)) if job.row_weights is None else None
    return kept if isinstance(kept, LocalRidge) else LocalRidge(job.train_rows, job.y_train, ridge)


def measure_central(jobs: Mapping[str, LocalJob], ridge: float) -> RoundMetrics:
    """Metrics of the pooled reference on each client's own test rows, and on all of them."""
    weights = central_weights(jobs, ridge)
    return measured(jobs, lambda job: predict(job, weights))


def measure_central_ridge(jobs: Mapping[str, LocalJob], settings: Any) -> RoundMetrics:
    """Metrics of the ridge model of all rows, by the ridge of a method's settings."""
    return measure_central(jobs, ridge_of(settings))


def measured(jobs: Mapping[str, LocalJob], scores: Callable[[LocalJob], Array]) -> RoundMetrics:
    """Metrics of scores on each client's own test rows, and on all of them."""
    sums = {name: (measure(MODEL, job.task, scores(job), held_out_targets(job)),) for name, job in jobs.items()}
    return collect(sums, next(iter(jobs.values())).task)
