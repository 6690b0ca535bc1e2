"""The pooled reference of the global linear models: ridge, or a head where the job names a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kernfed.federation.events import RoundMetrics
from kernfed.methods.heads.settings import has_head
from kernfed.methods.heads.tensors.fitting import fit
from kernfed.methods.heads.tensors.losses import Head
from kernfed.methods.heads.tensors.ridge_choice import chosen_ridge, splits
from kernfed.methods.shared_settings import ridge_of
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.heads.steps import folds, predictions, training_head
from kernfed_simulation.central import measure_central_ridge, measured


def measure_central_head(jobs: Mapping[str, LocalJob], settings: Any) -> RoundMetrics:
    """Metrics of a head trained on all clients' rows together.

    Args:
        jobs: Prepared alike, with a head opened.
        settings: Of the job.
    """
    names = sorted(jobs)
    everything = _pooled([training_head(jobs[name]) for name in names])
    ridge = ridge_of(settings)
    if getattr(settings, "chooses_ridge", False):
        ridge = chosen_ridge(splits(everything, torch.cat([folds(jobs[name]) for name in names])), ridge)
    weights = np.ascontiguousarray(fit(replace(everything, ridge=ridge)).numpy())
    return measured(jobs, lambda job: predictions(job, weights))


def _pooled(heads: Sequence[Head]) -> Head:
    z, y = (torch.cat([getattr(head, name).cpu() for head in heads]) for name in ("z", "y"))
    offset = heads[0].offset
    return replace(heads[0], z=z, y=y, offset=None if offset is None else offset.cpu())


def measure_central_linear(jobs: Mapping[str, LocalJob], settings: Any) -> RoundMetrics:
    """The reference, by the loss of the job."""
    return (measure_central_head if has_head(settings) else measure_central_ridge)(jobs, settings)


CENTRAL = dict.fromkeys(("newton", "fedavg", "fedprox", "fedsophia", "fednew"), measure_central_linear)
