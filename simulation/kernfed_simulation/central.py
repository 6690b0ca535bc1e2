"""The pooled reference: the same model trained on all rows in one place, which a real federation cannot have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import DataError
from kernfed.federation.evaluation import measure, metrics, pool
from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.evaluation import MetricSums
from kernfed.memory import require_bytes
from kernfed.methods.settings import DistillSettings
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.distill import steps as distill
from kernfed_client.methods.heads import steps as heads
from kernfed_client.steps.evaluation import encode_targets, held_out_targets, predict

MODEL = "central"


def central_weights(jobs: Mapping[str, LocalJob], ridge: float) -> Array:
    """Solve (Z'Z/n + ridge I) W = Z'Y/n over all clients' training rows, shape (M, C).

    Args:
        jobs: Prepared alike: the same features, scales and means.
        ridge: The ridge.

    Raises:
        DataError: There is no client.
        NotPositiveDefiniteError: The pooled matrix is singular to working precision.
    """
    import torch

    from kernfed.tensors.linalg import cholesky, self_product

    if not jobs:
        raise DataError("no client is left to pool rows of")
    gram: torch.Tensor | None = None
    moment: torch.Tensor | None = None
    num_rows = 0
    for name in sorted(jobs):
        z, y = jobs[name].z_train, jobs[name].y_train
        part, cross = self_product(z).cpu(), (z.T @ y).cpu()
        gram, moment = (part, cross) if gram is None or moment is None else (gram.add_(part), moment.add_(cross))
        num_rows += jobs[name].num_rows
    assert gram is not None  # noqa: S101  # there is a client
    assert moment is not None  # noqa: S101  # there is a client
    gram.div_(num_rows).diagonal().add_(ridge)
    solution = cholesky(gram, name="pooled Hessian").solve(moment.div_(num_rows))
    return np.ascontiguousarray(solution.numpy())


def measure_central_kernel(jobs: Mapping[str, LocalJob], settings: DistillSettings) -> RoundMetrics:
    """Metrics of exact kernel ridge regression on all clients' rows: the reference of distillation.

    Args:
        jobs: Prepared alike, distillation started.
        settings: Of the job.

    Raises:
        DataError: The rows together do not fit into memory.
    """
    import torch

    from kernfed.methods.distill.tensors.distillation import kernel_ridge

    names = sorted(jobs)
    x = np.concatenate([jobs[name].x_train for name in names])
    y = np.concatenate([encode_targets(jobs[name], jobs[name].targets_train) for name in names])
    require_bytes(8 * len(x) ** 2, f"the pooled reference on {len(x)} rows", "use fewer rows")
    kernel = distill.job_kernel(jobs[names[0]])
    model = kernel_ridge(kernel, torch.from_numpy(x), torch.from_numpy(y), settings.ridge)

    def scores(job: LocalJob) -> Array:
        found: Array = model(torch.from_numpy(job.x_test)).numpy()
        return found

    return _measured(jobs, scores)


def measure_central(jobs: Mapping[str, LocalJob], ridge: float) -> RoundMetrics:
    """Metrics of the pooled reference on each client's own test rows, and on all of them."""
    weights = central_weights(jobs, ridge)
    return _measured(jobs, lambda job: predict(job, weights))


def measure_central_head(jobs: Mapping[str, LocalJob], ridge: float) -> RoundMetrics:
    """Metrics of a head trained on all clients' rows together.

    Args:
        jobs: Prepared alike, with a head opened.
        ridge: The ridge.
    """
    import torch

    from kernfed.methods.heads.tensors.losses import Head, fit

    parts = [heads.training_head(jobs[name]) for name in sorted(jobs)]
    z, y = (torch.cat([getattr(part, name).cpu() for part in parts]) for name in ("z", "y"))
    weights = np.ascontiguousarray(fit(Head(parts[0].loss, z, y, ridge)).numpy())
    return _measured(jobs, lambda job: heads.predictions(job, weights))


def _measured(jobs: Mapping[str, LocalJob], scores: Callable[[LocalJob], Array]) -> RoundMetrics:
    sums: dict[str, MetricSums] = {
        name: measure(MODEL, job.task, scores(job), held_out_targets(job)) for name, job in sorted(jobs.items())
    }
    task = next(iter(jobs.values())).task
    return RoundMetrics(
        pooled={MODEL: pool(list(sums.values()), task)},
        clients={name: {MODEL: metrics(s, task)} for name, s in sums.items()},
    )
