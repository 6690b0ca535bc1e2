"""Distillation by the library alone, in one place, for jobs to be held against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.maths.points.kernels import gram
from kernfed.maths.sampling import sample_clients
from kernfed.methods.distill.consensus import Deregulariser, remember
from kernfed.methods.distill.tensors.distillation import DistilledRidge, kernel_ridge
from kernfed_simulation.federation import Rows

SPEC = KernelSpec(PointKernel.WENDLAND, (1.0,), False)
RIDGE = 3e-3


def tensor(a: Any) -> torch.Tensor:
    """In float64."""
    return torch.tensor(np.asarray(a), dtype=torch.float64)


def affine_maps(rows: Mapping[str, Rows], points: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each client's map of the consensus, as matrix and offset, with steps of one half."""
    public = tensor(points)
    maps = [
        DistilledRidge(SPEC, tensor(r.x_train), tensor(r.y_train)[:, None], public, RIDGE, 0.5).affine_map
        for r in rows.values()
    ]
    return [(a.numpy(), b.numpy()) for a, b in maps]


def by_hand(rows: Mapping[str, Rows], points: np.ndarray, rounds: int, **options: Any) -> np.ndarray:
    """The algorithms, from the library alone."""
    public, alpha = tensor(points), options.get("alpha", 1 / len(rows))
    names = sorted(rows)
    own = {n: kernel_ridge(SPEC, tensor(r.x_train), tensor(r.y_train)[:, None], RIDGE) for n, r in rows.items()}
    clients = {
        n: DistilledRidge(SPEC, tensor(r.x_train), tensor(r.y_train)[:, None], public, RIDGE, alpha)
        for n, r in rows.items()
    }
    deregularise = Deregulariser(gram(SPEC, points), options.get("undone", RIDGE))
    v: np.ndarray | None = None
    w: np.ndarray | None = None
    last: dict[str, np.ndarray | None] = dict.fromkeys(names)
    remembered: dict[str, np.ndarray] = {}
    for t in range(1, rounds + 1):
        fraction = options.get("fraction", 1.0)
        drawn = names if fraction == 1.0 else sample_clients(names, fraction, 3, t, options.get("participation", {}))
        drawn = [n for n in drawn if t not in options.get("away", {}).get(n, ())]
        uploads = {}
        for n in drawn:
            targets = last[n] if options.get("stale") else w
            found = own[n](public) if targets is None else clients[n].predict_public(tensor(targets))
            uploads[n] = found.numpy()
        remembered = {**remembered, **uploads} if options.get("remember") else uploads
        new = np.sum(list(remembered.values()), axis=0) / len(remembered)
        v = remember(v, new, t, options.get("exponent", 0.0))
        w = deregularise(v) if options.get("deregularise", True) else v
        for n in drawn:
            last[n] = w
    assert v is not None
    return v
