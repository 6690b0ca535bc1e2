"""The client's half of the diagnosis by eigenvalues: those of its training rows and of its test rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernfed.arrays import Floats
from kernfed.methods.reweight.spectrum_messages import Spectra, SpectraRequest
from kernfed_client.data.local_job import LocalJob


def spectra(job: LocalJob, request: SpectraRequest) -> Spectra:
    """Eigenvalues of Σ x x'/n, largest first."""
    num = request.num_values
    enough = job.num_test_rows >= job.file.policy.min_rows
    if request.mapped:
        for rows in (job.train_rows, job.test_rows):
            job.require(sum(rows.shape) * min(rows.shape), "second moments of the features")
        train, test = job.z_train, job.test_rows.whole() if enough else None
    else:
        train = torch.from_numpy(job.x_train)
        test = torch.from_numpy(job.x_test) if enough else None
    return Spectra(
        num_rows=job.num_rows,
        num_points=job.num_test_rows if enough else 0,
        train=_eigenvalues(train, num),
        test=np.zeros(num) if test is None else _eigenvalues(test, num),
    )


def _eigenvalues(x: Tensor, num: int) -> Floats:
    """The largest of X'X/n, shape (num,), by the smaller of X'X and XX'."""
    gram = (x.T @ x if x.shape[0] > x.shape[1] else x @ x.T) / max(len(x), 1)
    values = np.maximum(torch.linalg.eigvalsh(gram).cpu().numpy()[::-1], 0.0)[:num]
    return np.concatenate([values, np.zeros(num - len(values))])


STEPS: dict[type[Any], Any] = {SpectraRequest: spectra}
"""Steps of this module, by the request that they answer."""
