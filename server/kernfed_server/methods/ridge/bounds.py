"""What no number of a client's answer exceeds on a ridge problem, by what the coordinator knows: ranges of secure sums.

Centred one-hot targets have |y|² <= 2; those of regressions deviate as clients stated. Rows of random features have
|z|² <= `MOST_SQUARE`; those of other maps have about 1 a feature. Of what is no strict bound, `SLACK` times is allowed.
"""

from __future__ import annotations

import math

from kernfed.arrays import Array
from kernfed.features.kernels import MOST_SQUARE, RANDOM_KERNELS
from kernfed.maths.aggregate import norm
from kernfed.methods.ridge.messages import (
    GradientRequest,
    HessianProductRequest,
    NewtonStartRequest,
    NewtonStepRequest,
)
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.summing import SLACK

NewtonRequest = NewtonStartRequest | GradientRequest | NewtonStepRequest | HessianProductRequest


def largest_target(setup: Setup) -> float:
    """Of the norm of a row's centred targets."""
    return SLACK * max(setup.agreed.target_deviation, math.sqrt(2.0))


def largest_square(setup: Setup) -> float:
    """Of |z|², the mean over a client's rows, and so of the eigenvalues of H_j without the ridge."""
    return MOST_SQUARE if setup.agreed.spec.kernel in RANDOM_KERNELS else SLACK * setup.num_features


def largest_of_newton(setup: Setup, request: NewtonRequest) -> float:
    """Of what a trip of FedNewton brings: W_j and c_j; H_j W - c_j; H_j⁻¹ G, by the ridge; H_j Z."""
    if isinstance(request, NewtonStartRequest):
        moment = math.sqrt(largest_square(setup)) * largest_target(setup)
        return max(largest_solution(setup, request.ridge), moment)
    if isinstance(request, NewtonStepRequest):
        return norm(request.gradient) / request.ridge
    if isinstance(request, HessianProductRequest):
        return (largest_square(setup) + request.ridge) * norm(request.direction)
    return largest_gradient(setup, request.ridge, request.weights)


def largest_solution(setup: Setup, ridge: float) -> float:
    """Of a client's own solution W_j: F_j(W) <= F_j(0) bounds |W|² by the mean of |y|² over the ridge."""
    return largest_target(setup) / math.sqrt(ridge)


def largest_step(setup: Setup, ridge: float, before: Array) -> float:
    """Of where a client comes to from W by steps that lead to its own solution: |V - W_j| <= |W - W_j|."""
    return 2.0 * largest_solution(setup, ridge) + norm(before)


def largest_gradient(setup: Setup, ridge: float, at: Array) -> float:
    """Of H_j W - c_j, and of tr W'H_j W."""
    square, size = largest_square(setup), norm(at)
    return (square + ridge) * size * max(1.0, size) + math.sqrt(square) * largest_target(setup)
