"""Errors of left-out rows for many penalties: those of fits without these rows."""

from __future__ import annotations

import pytest
import torch

from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.maths.folds import units
from kernfed.methods.distill.tensors.distillation import kernel_ridge
from kernfed.methods.distill.tensors.tuning import held_out_sums

PENALTIES = (1e-4, 0.03, 2.0)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("copies", [False, True])
def test_sums_are_those_of_fits_without_each_unit(free: bool, copies: bool) -> None:
    """One decomposition gives what a fit for each unit and penalty gives."""
    draw = torch.Generator().manual_seed(3)
    x = torch.rand(14, 2, dtype=torch.float64, generator=draw)
    y = 100 + torch.randn(14, 2, dtype=torch.float64, generator=draw)
    if copies:
        x[[4, 9]], x[11] = x[0].clone(), x[6].clone()
    unit = units(x.numpy())
    spec = KernelSpec(PointKernel.GAUSSIAN, (0.6,), intercept=not free)
    found = held_out_sums(spec, x, y, PENALTIES, unit, free=free)
    for r, penalty in enumerate(PENALTIES):
        total = 0.0
        for u in range(int(unit.max()) + 1):
            rest = torch.from_numpy(unit != u)
            model = kernel_ridge(spec, x[rest], y[rest], penalty / int(rest.sum()), free=free)
            total += float((model(x[~rest]) - y[~rest]).square().sum())
        assert float(found[r]) == pytest.approx(total, rel=1e-9)
