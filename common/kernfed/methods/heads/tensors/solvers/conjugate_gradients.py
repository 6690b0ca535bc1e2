"""Newton systems by conjugate gradients: nothing but Hessian-vector products.

The residual that the iteration carries along drifts from the true one by rounding. So it is computed anew after every
`REFRESH` iterations, and before the tolerance is said to be reached. Residuals also lose their orthogonality, and an
answer that is cut short then shows it: the last digit of G becomes the fourth of X. So each is made orthogonal to the
first ones, as many as are kept.

Source: Hestenes & Stiefel (1952); FedNewton paper, Appendix A.1; Greenbaum & Strakos (1992) on what rounding does. Cut
after few iterations it is a regularised step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.errors import NotPositiveDefiniteError
from kernfed.methods.heads.tensors.losses import HeadHessian
from kernfed.methods.heads.tensors.solvers.interface import Limits, Solution, Stop

REFRESH = 50
"""Iterations between residuals that are computed anew."""
_KEPT_NUMBERS = 1 << 22
"""Numbers of first residuals that are kept, 32 MiB; of a large head that is few or none."""


def solve(hessian: HeadHessian, rhs: Tensor, limits: Limits) -> Solution:
    """Solve H X = G from X = 0, to a relative residual or a number of iterations, whichever comes first.

    Where a residual computed anew is no smaller than the one computed anew before, rounding allows no more: it stops.

    Raises:
        NotPositiveDefiniteError: A direction has negative curvature, or none while the residual is not yet small.
    """
    x = torch.zeros_like(rhs)
    r = rhs.clone()
    square = start = float(r.square().sum())
    p = r.clone()
    first = rhs.new_empty(min(_KEPT_NUMBERS // max(rhs.numel(), 1), limits.max_iterations), rhs.numel())
    target = limits.tolerance**2 * start
    done, fresh = 0, start
    stop = Stop.TOLERANCE if square <= target else Stop.ITERATIONS
    while square > target and done < limits.max_iterations:
        hp = hessian.product(p)
        curvature = float((p * hp).sum())
        if not curvature > 0:
            raise NotPositiveDefiniteError(
                f"conjugate gradients met the curvature {curvature:.3g} after {done} iterations: the Hessian is not "
                "positive definite to working precision; raise damping or ridge"
            )
        step = square / curvature
        x.add_(p, alpha=step)
        if done < len(first):
            first[done] = r.reshape(-1) / square**0.5
        r.sub_(hp, alpha=step)
        known = first[: done + 1]
        r.sub_((known.T @ (known @ r.reshape(-1))).reshape(r.shape))
        before, square = square, float(r.square().sum())
        done += 1
        if square <= target or done % REFRESH == 0:
            torch.sub(rhs, hessian.product(x), out=r)
            square = float(r.square().sum())
            if square <= target:
                stop = Stop.TOLERANCE
                break
            if square >= fresh:
                stop = Stop.ROUNDING
                break
            fresh = square
        p.mul_(square / before).add_(r)
    residual = (square / start) ** 0.5 if start > 0 else 0.0
    return Solution(x, done, residual, stop)
