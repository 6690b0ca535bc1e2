"""The pooled reference of the global linear models: ridge, or a head where the job names a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kernfed.federation.events import RoundMetrics
from kernfed.methods.heads.settings import has_head
from kernfed.methods.heads.tensors.losses import fit
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.heads.steps import predictions, training_head
from kernfed_simulation.central import measure_central_ridge, measured


def measure_central_head(jobs: Mapping[str, LocalJob], settings: Any) -> RoundMetrics:
    """Metrics of a head trained on all clients' rows together.

    Args:
        jobs: Prepared alike, with a head opened.
        settings: Of the job.
    """
    parts = [training_head(jobs[name]) for name in sorted(jobs)]
    z, y = (torch.cat([getattr(part, name).cpu() for part in parts]) for name in ("z", "y"))
    offset = None if parts[0].offset is None else parts[0].offset.cpu()
    weights = np.ascontiguousarray(fit(replace(parts[0], z=z, y=y, offset=offset, ridge=settings.ridge)).numpy())
    return measured(jobs, lambda job: predictions(job, weights))


def measure_central_linear(jobs: Mapping[str, LocalJob], settings: Any) -> RoundMetrics:
    """The reference, by the loss of the job."""
    return (measure_central_head if has_head(settings) else measure_central_ridge)(jobs, settings)


CENTRAL = dict.fromkeys(("newton", "fedavg", "fedprox", "fedsophia", "fednew"), measure_central_linear)
