"""Newton systems by a diagonal: one division per parameter.

Source: FedNewton paper, Appendix A.2, equation (12), for the empirical Fisher diagonal.
"""

from __future__ import annotations

from torch import Tensor

from kernfed.errors import NotPositiveDefiniteError
from kernfed.methods.heads.tensors.losses import HeadHessian
from kernfed.methods.heads.tensors.solvers.interface import Limits, Solution


def solve(hessian: HeadHessian, rhs: Tensor, limits: Limits) -> Solution:
    """Divide by the diagonal of H; `limits` are not used.

    Raises:
        NotPositiveDefiniteError: An entry is not above 0.
    """
    return _divide(rhs, hessian.diagonal(), "Hessian's diagonal")


def solve_fisher(hessian: HeadHessian, rhs: Tensor, limits: Limits) -> Solution:
    """Divide by the empirical Fisher diagonal, plus ridge and damping; `limits` are not used.

    Raises:
        NotPositiveDefiniteError: An entry is not above 0.
    """
    return _divide(rhs, hessian.fisher_diagonal(), "empirical Fisher diagonal")


def _divide(rhs: Tensor, diagonal: Tensor, name: str) -> Solution:
    least = float(diagonal.min()) if diagonal.numel() else 1.0
    if not least > 0:
        raise NotPositiveDefiniteError(f"the {name} has an entry of {least:.3g}; raise damping or ridge")
    return Solution(rhs / diagonal, 0, 0.0)
