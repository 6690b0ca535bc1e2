"""The client's half of the methods on a head: losses, gradients, local Newton steps, local training.

A head's rows are the job's mapped features with a 1 beside them (the bias), and targets: one-hot, 0/1 or numbers. With
a free bias, weights are changes of a head that predicts the pooled mean of the targets: numbers are centred by it, and
the scores of classes begin there. Rows kept apart for validation are drawn by the job's seed and this client's name;
`warm_up` leaves them out, and `gradient` where it is told to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernfed import rng
from kernfed.arrays import Array, Integers
from kernfed.errors import DataError, InvalidTensorError, JobStateMissingError
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.maths.folds import FOLDS, deal, keep_apart
from kernfed.maths.losses import Link
from kernfed.maths.tasks import TASKS
from kernfed.methods.heads.losses import FACTS, start_scores
from kernfed.methods.heads.messages import (
    EvaluateHeadRequest,
    HeadDescentRequest,
    HeadDirection,
    HeadDirectionRequest,
    HeadGradient,
    HeadGradientRequest,
    HeadLosses,
    HeadLossesRequest,
    HeadOpened,
    HeadSolver,
    HeadSophiaRequest,
    HeadStep,
    HeadStepRequest,
    HeadWarmUp,
    HeadWarmUpRequest,
    HeadWeights,
    OpenHeadRequest,
)
from kernfed.methods.heads.tensors import training
from kernfed.methods.heads.tensors.fitting import fit
from kernfed.methods.heads.tensors.losses import Head, probabilities
from kernfed.methods.heads.tensors.ridge_choice import chosen_ridge, splits
from kernfed.methods.heads.tensors.solvers import eigen, lanczos
from kernfed.methods.heads.tensors.solvers.interface import Limits
from kernfed.methods.heads.tensors.solvers.solve import solve
from kernfed.tensors.arrays import check_shape, to_array, to_tensor
from kernfed.tensors.rows import product
from kernfed_client.data.alone import alone
from kernfed_client.data.guards.feature_blocks import feature_block
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.heads.sure_rows import refuse_sure_rows
from kernfed_client.steps.evaluation import encode_targets, evaluated


@dataclass(frozen=True, slots=True)
class OpenHead:
    """A head's rows at this client. The ridge is the request's."""

    fitting: Head
    validation: Head
    everything: Head
    request: OpenHeadRequest
    """By which it was opened."""
    fitting_block: Integers | None = None
    """Number of the block of each row of `fitting`; None: rows are drawn one by one."""

    @property
    def bias(self) -> bool:
        """Whether the last feature is a 1."""
        return self.request.bias


def open_head(job: LocalJob, request: OpenHeadRequest) -> HeadOpened:
    """Put rows and targets together, and draw the validation rows.

    Raises:
        InvalidTensorError: The coordinator counts other features or outputs than this client.
        DataError: The loss does not fit the task.
    """
    want = (job.train_rows.shape[1] + int(request.bias), job.num_outputs)
    if (request.num_features, request.num_outputs) != want:
        raise InvalidTensorError(
            f"{request.step}: {request.num_features} features and {request.num_outputs} outputs, but this client has "
            f"{want[0]} and {want[1]}"
        )
    if FACTS[request.loss].link not in (Link.IDENTITY, TASKS[job.task].link):
        raise DataError(f'the {request.loss} loss does not fit a {job.task} task; use loss = "squared"')
    job.forget("head")
    opened = job.memo("head", lambda: _open(job, request))
    return HeadOpened(
        num_rows=job.num_rows,
        num_fit_rows=opened.fitting.num_rows,
        num_validation_rows=opened.validation.num_rows,
        memory_bytes=job.usable_bytes(),
        free_bias=opened.everything.free_bias,
    )


def gradient(job: LocalJob, request: HeadGradientRequest) -> HeadGradient:
    """F_j, its gradient and mean curvature at W, and what W is worth on validation rows."""
    opened = _opened(job)
    head = _head(opened, request.ridge, leave_out=request.leave_out)
    w = _weights(job, request.weights, request.step)
    value, slope = head.value_and_gradient(w)
    validation_loss, validation_slope = opened.validation.loss_and_slope(w)
    return HeadGradient(
        num_rows=job.num_rows,
        loss=value,
        validation_loss=validation_loss,
        validation_slope=validation_slope,
        mean_curvature=head.hessian(w).mean_diagonal(),
        gradient=to_array(slope),
    )


def newton_step(job: LocalJob, request: HeadStepRequest) -> HeadStep:
    """(H_j(W) + damping I)⁻¹ G, by the solver asked for."""
    head, w = _head(_opened(job), request.ridge), _weights(job, request.weights, request.step)
    if request.solver is HeadSolver.LANCZOS:
        job.require(lanczos.basis_size(w.numel(), request.rank) * w.numel(), "the basis of the lanczos solver")
    if request.solver is HeadSolver.EIGEN:
        job.require(6 * eigen.block_size(w.numel(), request.rank) * w.numel(), "the blocks of the eigen solver")
    hessian = head.hessian(w).with_damping(request.damping)
    limits = Limits(
        tolerance=request.tolerance,
        max_iterations=request.max_iterations,
        rank=request.rank,
        max_bytes=min(request.max_bytes, job.usable_bytes()),
    )
    found = solve(request.solver, hessian, _tensor(job, request.direction, request.step), limits)
    return HeadStep(
        num_rows=job.num_rows, iterations=found.iterations, residual=found.residual, newton_step=to_array(found.value)
    )


def losses(job: LocalJob, request: HeadLossesRequest) -> HeadLosses:
    """F_j at several points of a line."""
    head = _head(_opened(job), request.ridge)
    w, d = _tensor(job, request.weights, request.step), _tensor(job, request.direction, request.step)
    points = [w - float(size) * d for size in request.step_sizes]
    for point in points:
        refuse_sure_rows(head, point, job.file.policy.min_rows)
    found = [head.value(point) for point in points]
    return HeadLosses(num_rows=job.num_rows, losses=np.array(found))


def descend(job: LocalJob, request: HeadDescentRequest) -> HeadWeights:
    """Epochs of gradient descent with momentum from W, held near W where the proximal term says so."""
    trained = training.descend(
        _head(_opened(job), request.ridge),
        _weights(job, request.weights, request.step),
        learning_rate=request.learning_rate,
        momentum=request.momentum,
        num_epochs=request.num_epochs,
        batch_size=request.batch_size,
        proximal=request.proximal,
        seed=rng.seed(request.seed, "batches", job.client),
        block=feature_block(job),
    )
    return HeadWeights(num_rows=job.num_rows, weights=to_array(_usable(job, trained)))


def warm_up(job: LocalJob, request: HeadWarmUpRequest) -> HeadWarmUp:
    """F_j and the loss on validation rows at W, and epochs of gradient descent with momentum from there."""
    opened = _opened(job)
    head, w = _head(opened, request.ridge, leave_out=True), _weights(job, request.weights, request.step)
    validation_loss, _ = opened.validation.loss_and_slope(w)
    trained = training.descend(
        head,
        w,
        learning_rate=request.learning_rate,
        momentum=request.momentum,
        num_epochs=request.num_epochs,
        batch_size=request.batch_size,
        seed=rng.seed(request.seed, "batches", job.client),
        block=opened.fitting_block,
    )
    return HeadWarmUp(
        num_rows=job.num_rows,
        loss=head.value(w),
        validation_loss=validation_loss,
        weights=to_array(_usable(job, trained)),
    )


def sophia(job: LocalJob, request: HeadSophiaRequest) -> HeadWeights:
    """Epochs of FedSophia's clipped steps from W."""
    trained = training.sophia(
        _head(_opened(job), request.ridge),
        _weights(job, request.weights, request.step),
        learning_rate=request.learning_rate,
        momentum=request.momentum,
        curvature_momentum=request.curvature_momentum,
        clip=request.clip,
        curvature_every=request.curvature_every,
        unit=request.target_deviation or 1.0,
        num_epochs=request.num_epochs,
        batch_size=request.batch_size,
        seed=rng.seed(request.seed, "batches", job.client),
        block=feature_block(job),
    )
    return HeadWeights(num_rows=job.num_rows, weights=to_array(_usable(job, trained)))


def direction(job: LocalJob, request: HeadDirectionRequest) -> HeadDirection:
    """FedNew's y_j = (H_j(W) + (damping + penalty) I)⁻¹ (∇F_j(W) - dual + penalty · previous)."""
    head, w = _head(_opened(job), request.ridge), _weights(job, request.weights, request.step)
    dual, previous = (_tensor(job, a, request.step) for a in (request.dual, request.previous))
    _, slope = head.value_and_gradient(w)
    rhs = slope - dual + request.penalty * previous
    hessian = head.hessian(w).with_damping(request.damping + request.penalty)
    limits = Limits(tolerance=request.tolerance, max_iterations=request.max_iterations)
    return HeadDirection(num_rows=job.num_rows, direction=to_array(solve(HeadSolver.CG, hessian, rhs, limits).value))


def evaluate(job: LocalJob, request: EvaluateHeadRequest) -> Evaluation:
    """Metric sums of the global head, and of one that this client trains alone: own rows, own scales, own ridge."""
    check_shape(request.weights.shape, _shape(_opened(job)), request.step)
    scores = {}
    if request.include_global:
        _weights(job, request.weights, request.step)
        scores["global"] = predictions(job, request.weights)
    if request.include_local:
        key = ("own head", request.ridge, request.choose_ridge)
        scores["local"] = job.memo(key, lambda: _predictions_alone(job, request))
    if request.local_shared:
        key = ("own head, shared", request.ridge, request.choose_ridge)
        scores["local-shared"] = job.memo(key, lambda: _predictions_own(job, request))
    return evaluated(job, scores)


def folds(job: LocalJob) -> Tensor:
    """The fold of each training row by which a ridge is chosen, (n,): by seed and name, copies and groups together."""
    request = _opened(job).request
    order = rng.stream(request.seed, "ridge", job.client).permutation(job.num_rows)
    return torch.from_numpy(deal(order, job.together(job.x_train), FOLDS))


def predictions(job: LocalJob, weights: Array) -> Array:
    """Predictions of the test rows in the units of the targets, shape (m, C): probabilities, or numbers.

    Args:
        job: With a head opened.
        weights: Shape (D, C), the bias last.
    """
    opened = _opened(job)
    w = _tensor(job, weights, "head.evaluate")
    scores = product(job.test_rows, w[: job.test_rows.shape[1]])
    if opened.bias:
        scores = scores + w[-1]
    if opened.everything.free_bias:
        scores = scores + torch.as_tensor(start_scores(opened.everything.loss, job.target_mean), device=scores.device)
    return to_array(probabilities(opened.everything.loss, scores))


def training_head(job: LocalJob) -> Head:
    """All rows of an opened head."""
    return _opened(job).everything


def _predictions_alone(job: LocalJob, request: EvaluateHeadRequest) -> Array:
    """Predictions of the test rows by the head that this client trains without the others, shape (m, C)."""
    own = alone(job)
    opening = replace(_opened(job).request, validation_fraction=0.0)
    own.memo("head", lambda: _open(own, opening))
    return _predictions_own(own, request)


def _predictions_own(job: LocalJob, request: EvaluateHeadRequest) -> Array:
    """Predictions of the test rows by a head of this client's rows, as they are prepared here, shape (m, C)."""
    everything, ridge = _opened(job).everything, request.ridge
    if request.choose_ridge:
        ridge = chosen_ridge(splits(everything, folds(job).to(everything.z.device)), ridge)
    return predictions(job, to_array(fit(replace(everything, ridge=ridge))))


def _open(job: LocalJob, request: OpenHeadRequest) -> OpenHead:
    z = job.z_train
    if request.bias:
        z = torch.cat([z, z.new_ones(len(z), 1)], dim=1)
    y, offset = torch.as_tensor(encode_targets(job, job.targets_train), dtype=z.dtype, device=z.device), None
    free = request.free_bias and request.bias
    if free and FACTS[request.loss].link is Link.IDENTITY:
        y = job.y_train
    elif free:
        offset = torch.as_tensor(start_scores(request.loss, job.target_mean), dtype=z.dtype, device=z.device)
    everything = Head(request.loss, z, y, 0.0, free, offset)
    num_apart, block = int(request.validation_fraction * len(z)), feature_block(job)
    if num_apart < max(1, job.file.policy.min_rows):  # a loss over fewer rows does not leave
        return OpenHead(everything, everything.take(torch.zeros(0, dtype=torch.long)), everything, request, block)
    order = rng.stream(request.seed, "validation", job.client).permutation(len(z))
    marked = torch.from_numpy(keep_apart(order, job.unit if block is None else block, num_apart)).to(z.device)
    apart, kept = marked.nonzero()[:, 0], (~marked).nonzero()[:, 0]
    block = None if block is None else block[kept.cpu().numpy()]
    return OpenHead(everything.take(kept), everything.take(apart), everything, request, block)


def _opened(job: LocalJob) -> OpenHead:
    def missing() -> OpenHead:
        raise JobStateMissingError("this client holds no state for the job from step head.open; prepare it again")

    return job.memo("head", missing)


def _head(opened: OpenHead, ridge: float, *, leave_out: bool = False) -> Head:
    return replace(opened.fitting if leave_out else opened.everything, ridge=ridge)


def _shape(opened: OpenHead) -> tuple[int, int]:
    return opened.everything.z.shape[1], opened.everything.y.shape[1]


def _tensor(job: LocalJob, array: Array, step: str) -> Tensor:
    return to_tensor(array, _shape(_opened(job)), job.device, step)


def _weights(job: LocalJob, array: Array, step: str) -> Tensor:
    """Weights at which sums over rows are told."""
    return _usable(job, _tensor(job, array, step))


def _usable(job: LocalJob, w: Tensor) -> Tensor:
    refuse_sure_rows(_opened(job).everything, w, job.file.policy.min_rows)
    return w


STEPS: dict[type[Any], Any] = {
    OpenHeadRequest: open_head,
    HeadGradientRequest: gradient,
    HeadStepRequest: newton_step,
    HeadLossesRequest: losses,
    HeadDescentRequest: descend,
    HeadWarmUpRequest: warm_up,
    HeadSophiaRequest: sophia,
    HeadDirectionRequest: direction,
    EvaluateHeadRequest: evaluate,
}
"""Steps of this module, by the request that they answer."""
