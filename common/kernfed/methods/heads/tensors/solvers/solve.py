"""The table of solvers, and the one function that solves with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from kernfed.errors import NumericalError
from kernfed.methods.heads.messages import HeadSolver
from kernfed.methods.heads.tensors.losses import HeadHessian
from kernfed.methods.heads.tensors.solvers import conjugate_gradients, diagonal, eigen, exact, lanczos
from kernfed.methods.heads.tensors.solvers.interface import Limits, Solution

_SOLVERS: Mapping[HeadSolver, Callable[[HeadHessian, Tensor, Limits], Solution]] = {
    HeadSolver.EXACT: exact.solve,
    HeadSolver.CG: conjugate_gradients.solve,
    HeadSolver.DIAGONAL: diagonal.solve,
    HeadSolver.FISHER: diagonal.solve_fisher,
    HeadSolver.LANCZOS: lanczos.solve,
    HeadSolver.EIGEN: eigen.solve,
}


def solve(solver: HeadSolver, hessian: HeadHessian, rhs: Tensor, limits: Limits) -> Solution:
    """Solve H X = G.

    Args:
        solver: How.
        hessian: H, damping included.
        rhs: G, shape (D, C).
        limits: How far.

    Raises:
        DataError: An exact solve needs more than `limits.max_bytes`.
        NumericalError: H is not positive definite, or the answer is not finite.
    """
    found = _SOLVERS[solver](hessian, rhs, limits)
    if not bool(torch.isfinite(found.value).all()):
        raise NumericalError(f"the {solver} solver's step is not finite; raise damping or ridge")
    return found
