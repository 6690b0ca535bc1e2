"""What a client's rows say of the job's ridge and lengthscale: errors of its own rows, each left out in turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from kernfed import rng
from kernfed.arrays import Array
from kernfed.errors import InvalidTensorError, WireError
from kernfed.maths.folds import keep_apart
from kernfed.methods.distill.messages import MOST_LEFT_OUT, LeftOutErrors, LeftOutErrorsRequest
from kernfed.methods.distill.scales import WORST
from kernfed.methods.distill.tensors.tuning import held_out_sums
from kernfed.tensors.arrays import to_array
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.evaluation import encode_targets

_MOST = 100
"""Longest side of a grid."""
_FEWEST = 3
"""Fewest different rows that say anything."""


def leave_out(job: LocalJob, request: LeftOutErrorsRequest) -> LeftOutErrors:
    """Predict each own row from the others, for all lengthscales and penalties that are asked for.

    Sums are cut off at `WORST` times those of predicting the mean: how bad a bad choice is does not matter.
    """
    if request.num_outputs != job.num_outputs:
        raise InvalidTensorError(f"{request.step}: {request.num_outputs} outputs, but the data have {job.num_outputs}")
    factors, penalties = (_grid(a, request.step) for a in (request.factors, request.penalties))
    x, y = job.x_train, encode_targets(job, job.targets_train)
    if len(x) > MOST_LEFT_OUT:
        order = rng.stream(request.seed, "left out", job.client).permutation(len(x))
        single = np.arange(len(x)) if job.block is None else job.block
        chosen = np.flatnonzero(keep_apart(order, single, MOST_LEFT_OUT))
    else:
        chosen = np.arange(len(x))
    x, y = x[chosen], y[chosen]
    unit = job.together(x, chosen)
    sums = np.zeros((len(factors), len(penalties)))
    if int(unit.max(initial=-1)) + 1 < _FEWEST:
        return LeftOutErrors(num_rows=job.num_rows, num_used=0, squared_errors=sums)
    rows, targets = (torch.tensor(a, dtype=torch.float64, device=job.device) for a in (x, y))
    for s, factor in enumerate(factors):
        scaled = tuple(factor * scale for scale in request.kernel.lengthscales)
        kernel = replace(request.kernel, lengthscales=scaled)
        sums[s] = to_array(held_out_sums(kernel, rows, targets, penalties, unit, free=request.free_intercept))
    most = WORST * float(np.square(y - y.mean(axis=0)).sum())
    return LeftOutErrors(
        num_rows=job.num_rows, num_used=len(x), squared_errors=np.nan_to_num(sums, nan=most).clip(0.0, most)
    )


def _grid(numbers: Array, step: str) -> list[float]:
    """The numbers of one side of a grid.

    Raises:
        WireError: There are none, too many, or some that are not above 0.
    """
    if not (0 < len(numbers) <= _MOST and (numbers > 0).all()):
        raise WireError(f"{step}: a grid of {len(numbers)} numbers, want 1 to {_MOST}, all above 0")
    found: list[float] = numbers.astype(np.float64).tolist()
    return found
