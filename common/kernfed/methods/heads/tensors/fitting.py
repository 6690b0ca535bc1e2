"""The minimiser of a head whose rows are all in one place: heads that are trained alone, and references."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kernfed.errors import NotPositiveDefiniteError
from kernfed.maths.losses import Link
from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.messages import HeadSolver
from kernfed.methods.heads.solver_sizes import exact_bytes
from kernfed.methods.heads.tensors.losses import Head
from kernfed.methods.heads.tensors.solvers.interface import Limits
from kernfed.methods.heads.tensors.solvers.solve import solve

MAX_BYTES = 2**28
"""Most memory of a matrix that is factored with its factor."""


def fit(
    head: Head,
    start: Tensor | None = None,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    max_bytes: int = MAX_BYTES,
) -> Tensor:
    """Minimise F, shape (D, C): by one exact Newton step where F is quadratic and its matrix fits, else by L-BFGS.

    Args:
        head: The problem.
        start: Where L-BFGS begins, shape (D, C); unset: W = 0.
        tolerance: It stops where no component of the gradient is larger; of squares, which have the units of the
            targets, than this part of the largest at W = 0.
        max_iterations: It stops here in any case; F is then low enough for a reference.
        max_bytes: Most memory of the matrix and its factor.
    """
    shape = (head.z.shape[1], head.y.shape[1])
    quadratic = FACTS[head.loss].link is Link.IDENTITY
    zero = head.z.new_zeros(shape)
    if quadratic:
        slope = head.gradient(zero)
        if exact_bytes(head.loss, head.num_rows, *shape) <= max_bytes:
            try:
                return -solve(HeadSolver.EXACT, head.hessian(zero), slope, Limits(max_bytes=max_bytes)).value
            except NotPositiveDefiniteError:  # with next to no ridge; L-BFGS stops where it can go no further
                pass
        tolerance *= float(slope.abs().max())

    def value(flat: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, np.ndarray]:
        w = torch.as_tensor(flat.reshape(shape), dtype=head.z.dtype, device=head.z.device)
        f, gradient = head.value_and_gradient(w)
        return f, gradient.cpu().numpy().astype(np.float64).reshape(-1)

    options = {"maxiter": max_iterations, "gtol": tolerance, "ftol": 0.0, "maxcor": 20}
    begin = (zero if start is None else start).cpu().numpy().astype(np.float64).reshape(-1)
    from scipy.optimize import minimize  # noqa: PLC0415  # a sixth of a second, and only heads fit this way

    found = minimize(value, begin, jac=True, method="L-BFGS-B", options=options)
    return torch.as_tensor(found.x.reshape(shape), dtype=head.z.dtype, device=head.z.device)
