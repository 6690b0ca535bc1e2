"""The pooled reference of distillation: exact kernel ridge regression."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from kernfed.arrays import Array
from kernfed.federation.events import RoundMetrics
from kernfed.memory import require_bytes
from kernfed.methods.distill.settings import DistillSettings
from kernfed.methods.distill.tensors.distillation import kernel_ridge
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.distill.steps import start_request
from kernfed_client.steps.evaluation import encode_targets
from kernfed_simulation.central import measured


def measure_central_kernel(jobs: Mapping[str, LocalJob], settings: DistillSettings) -> RoundMetrics:
    """Metrics of exact kernel ridge regression on all clients' rows: the reference of distillation.

    Args:
        jobs: Prepared alike, distillation started.
        settings: Of the job; clients were told what it asks for.

    Raises:
        DataError: The rows together do not fit into memory.
    """
    del settings
    names = sorted(jobs)
    x = np.concatenate([jobs[name].x_train for name in names])
    y = np.concatenate([encode_targets(jobs[name], jobs[name].targets_train) for name in names])
    require_bytes(8 * len(x) ** 2, f"the pooled reference on {len(x)} rows", "use fewer rows")
    asked = start_request(jobs[names[0]])
    rows, targets = torch.from_numpy(x), torch.from_numpy(y)
    model = kernel_ridge(asked.kernel, rows, targets, asked.ridge, free=asked.free_intercept)

    def scores(job: LocalJob) -> Array:
        found: Array = model(torch.from_numpy(job.x_test)).numpy()
        return found

    return measured(jobs, scores)


CENTRAL = {"distill": measure_central_kernel}
