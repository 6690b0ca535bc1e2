"""The client's half of the ridge methods: local solves, FedNewton's trips, gradient and proximal steps.

Each is a function of the client's rows and the request; H_j is factored once per ridge and kept
(`kernfed.tensors.ridge`).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernfed import rng
from kernfed.arrays import Array
from kernfed.errors import InvalidTensorError
from kernfed.methods.ridge.masked_messages import (
    MaskedDescentRequest,
    MaskedGradientRequest,
    MaskedProductRequest,
    MaskedProximalRequest,
    MaskedSolveRequest,
    MaskedStartRequest,
    MaskedStepRequest,
)
from kernfed.methods.ridge.messages import (
    MOST_DIRECTIONS,
    Curvature,
    CurvatureRequest,
    Gradient,
    GradientDescentRequest,
    GradientRequest,
    HeldOutLoss,
    HeldOutLossRequest,
    HessianProduct,
    HessianProductRequest,
    LocalModel,
    LocalSolveRequest,
    NewtonStart,
    NewtonStartRequest,
    NewtonStep,
    NewtonStepRequest,
    ProximalSolveRequest,
    SecondMoments,
    SecondMomentsRequest,
    TrainedLocally,
    TrainLocallyRequest,
)
from kernfed.tensors.arrays import check_shape, to_array, to_tensor
from kernfed.tensors.ridge import LocalRidge
from kernfed_client.data.alone import alone
from kernfed_client.data.guards.feature_blocks import feature_block
from kernfed_client.data.local_job import LocalJob
from kernfed_client.models.own_model import keep_own_model
from kernfed_client.steps.own_ridge import fold_rows, forget_folds, held_out, local_ridge, own_weights
from kernfed_client.steps.sums import masked


def local_solve(job: LocalJob, request: LocalSolveRequest) -> LocalModel:
    """H_j⁻¹ c_j."""
    check_shape((request.num_features, request.num_outputs), _shape(job), request.step)
    return LocalModel(num_rows=job.num_rows, weights=own_weights(job, request.ridge))


def train_locally(job: LocalJob, request: TrainLocallyRequest) -> TrainedLocally:
    """Solve for this client's own model and keep it in the client's state folder."""
    own = alone(job) if request.alone else job
    keep_own_model(own, own_weights(own, request.ridge))
    return TrainedLocally(num_rows=job.num_rows)


def newton_start(job: LocalJob, request: NewtonStartRequest) -> NewtonStart:
    """H_j⁻¹ c_j and c_j."""
    check_shape((request.num_features, request.num_outputs), _shape(job), request.step)
    if request.fold:
        without = local_ridge(job, request.ridge, request.fold)
        weights, moment = to_array(without.solve()), to_array(without.moment())
    else:
        forget_folds(job)
        weights, moment = own_weights(job, request.ridge), to_array(local_ridge(job, request.ridge).moment())
    return NewtonStart(num_rows=job.num_rows, weights=weights, moment=moment)


def gradient(job: LocalJob, request: GradientRequest) -> Gradient:
    """H_j W - c_j, and tr W'H_j W."""
    w, problem = _tensor(job, request.weights, request.step), _problem(job, request)
    energy = float((w * problem.hessian_product(w)).sum()) if request.energy else 0.0
    return Gradient(num_rows=job.num_rows, gradient=to_array(problem.gradient(w)), energy=max(energy, 0.0))


def newton_step(job: LocalJob, request: NewtonStepRequest) -> NewtonStep:
    """H_j⁻¹ G."""
    g = _tensor(job, request.gradient, request.step)
    return NewtonStep(num_rows=job.num_rows, newton_step=to_array(_problem(job, request).newton_step(g)))


def hessian_product(job: LocalJob, request: HessianProductRequest) -> HessianProduct:
    """H_j Z."""
    z = _tensor(job, request.direction, request.step)
    return HessianProduct(num_rows=job.num_rows, product=to_array(_problem(job, request).hessian_product(z)))


def second_moments(job: LocalJob, request: SecondMomentsRequest) -> SecondMoments:
    """H_j Z, H_j⁻¹ G and tr C_j."""
    for array in (request.directions, request.right):
        if array.shape[1] > MOST_DIRECTIONS:
            raise InvalidTensorError(
                f"{request.step} has {array.shape[1]} columns, and a client takes {MOST_DIRECTIONS} at most"
            )
    z, g = (
        to_tensor(array, (_shape(job)[0], array.shape[1]), job.device, request.step)
        for array in (request.directions, request.right)
    )
    problem = local_ridge(job, request.ridge)
    return SecondMoments(
        num_rows=job.num_rows,
        product=to_array(problem.hessian_product(z)),
        solve=to_array(problem.newton_step(g)),
        mean_square=problem.mean_square(),
    )


def loss_apart(job: LocalJob, request: HeldOutLossRequest) -> HeldOutLoss:
    """The loss of W on a fold of this client's rows."""
    w, rows = _tensor(job, request.weights, request.step), fold_rows(job, request.fold)
    loss, num_correct = held_out(job, w, rows) if len(rows) else (0.0, 0)
    return HeldOutLoss(num_rows=job.num_rows, num_apart=len(rows), loss=loss, num_correct=num_correct)


def curvature(job: LocalJob, request: CurvatureRequest) -> Curvature:
    """Largest eigenvalue of H_j."""
    value = job.memo(("curvature", request.ridge), lambda: local_ridge(job, request.ridge).largest_eigenvalue())
    return Curvature(num_rows=job.num_rows, largest_eigenvalue=value)


def gradient_descent(job: LocalJob, request: GradientDescentRequest) -> LocalModel:
    """Gradient steps from W on this client's objective; the order of batches is drawn from the seed and its name."""
    w = _tensor(job, request.weights, request.step)

    seed = rng.seed(request.seed, "batches", job.client)
    trained = local_ridge(job, request.ridge).gradient_descent(
        w,
        learning_rate=request.learning_rate,
        num_steps=request.num_steps,
        batch_size=request.batch_size,
        seed=seed,
        block=feature_block(job),
    )
    return LocalModel(num_rows=job.num_rows, weights=to_array(trained))


def proximal_solve(job: LocalJob, request: ProximalSolveRequest) -> LocalModel:
    """Argmin F_j(V) + (proximal/2) |V - W|²."""
    w = _tensor(job, request.weights, request.step)
    return LocalModel(
        num_rows=job.num_rows, weights=to_array(local_ridge(job, request.ridge).proximal_solve(w, request.proximal))
    )


def _problem(job: LocalJob, request: GradientRequest | NewtonStepRequest | HessianProductRequest) -> LocalRidge:
    return local_ridge(job, request.ridge, request.fold)


def _shape(job: LocalJob) -> tuple[int, int]:
    return job.train_rows.shape[1], job.y_train.shape[1]


def _tensor(job: LocalJob, array: Array, step: str) -> Tensor:
    return to_tensor(array, _shape(job), job.device, step)


STEPS: dict[type[Any], Any] = {
    LocalSolveRequest: local_solve,
    MaskedSolveRequest: masked(local_solve),
    TrainLocallyRequest: train_locally,
    NewtonStartRequest: newton_start,
    MaskedStartRequest: masked(newton_start),
    GradientRequest: gradient,
    MaskedGradientRequest: masked(gradient),
    NewtonStepRequest: newton_step,
    MaskedStepRequest: masked(newton_step),
    HessianProductRequest: hessian_product,
    MaskedProductRequest: masked(hessian_product),
    SecondMomentsRequest: second_moments,
    HeldOutLossRequest: loss_apart,
    CurvatureRequest: curvature,
    GradientDescentRequest: gradient_descent,
    MaskedDescentRequest: masked(gradient_descent),
    ProximalSolveRequest: proximal_solve,
    MaskedProximalRequest: masked(proximal_solve),
}
"""Steps of this module, by the request that they answer."""
