"""The client's half of training for many targets: one computation steps all models that weigh this client."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernfed import rng
from kernfed.arrays import Array, Flags, Floats, Integers
from kernfed.errors import InvalidTensorError, WireError
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.maths.adam import Adam
from kernfed.maths.folds import deal, sums_of_deviations
from kernfed.maths.tasks import TASKS
from kernfed.methods.personalise.messages import ModelAdopted
from kernfed.methods.personalise.networks.scales import Scales
from kernfed.methods.personalise.training_messages import (
    MOST_LOSS,
    EvaluateNetworksRequest,
    KeepModelRequest,
    KeepNetworkRequest,
    NetworkScores,
    PersonalProducts,
    PersonalProductsRequest,
    PersonalStart,
    PersonalStartRequest,
    PersonalSteps,
    PersonalStepsRequest,
    ScoreNetworksRequest,
    TrainedNetworks,
    TrainNetworksRequest,
    WatchedNetworks,
    WatchNetworksRequest,
)
from kernfed.models.network_spec import NetworkSpec
from kernfed.tensors.affine_ridge import AffineRidge
from kernfed.tensors.arrays import to_array
from kernfed.tensors.networks import dtype_of, row_losses, train
from kernfed.tensors.ridge import LocalRidge
from kernfed.tensors.rows_behind import RowsBehind
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.personalise.state import personal
from kernfed_client.methods.personalise.steps import keep_linear
from kernfed_client.models.small_network import OwnNetwork, check_network, training_rows
from kernfed_client.steps.evaluation import evaluated
from kernfed_client.steps.own_ridge import local_ridge


def newton_start(job: LocalJob, request: PersonalStartRequest) -> PersonalStart:
    """H_j⁻¹ c_j and c_j of the problem with an intercept."""
    want = (job.train_rows.shape[1] + 1, job.num_outputs)
    if (request.num_inputs, request.num_outputs) != want:
        raise WireError(f"{request.step}: {request.num_inputs} inputs, {request.num_outputs} outputs; it has {want}")
    problem = _affine_ridge(job, request.ridge)
    return PersonalStart(num_rows=job.num_rows, weights=to_array(problem.solve()), moment=to_array(problem.moment()))


def newton_steps(job: LocalJob, request: PersonalStepsRequest) -> PersonalSteps:
    """H_j⁻¹ G for all models at once: H_j is factored once."""
    g = _columns(job, request.residuals, request.intercept, request.step)
    problem = _problem(job, request.ridge, request.intercept)
    return PersonalSteps(num_rows=job.num_rows, steps=to_array(problem.newton_step(g)))


def hessian_products(job: LocalJob, request: PersonalProductsRequest) -> PersonalProducts:
    """H_j Z for all directions at once."""
    z = _columns(job, request.directions, request.intercept, request.step)
    problem = _problem(job, request.ridge, request.intercept)
    return PersonalProducts(num_rows=job.num_rows, products=to_array(problem.hessian_product(z)))


def keep_model(job: LocalJob, request: KeepModelRequest) -> ModelAdopted:
    """Keep the personal model that was trained for this client."""
    state = personal(job)
    weights = np.asarray(request.weights, np.float64)
    if weights.shape != (job.train_rows.shape[1] + int(request.intercept), job.num_outputs):
        raise InvalidTensorError(f"{request.step}: weights of shape {weights.shape} do not fit this client")
    if state.request.intercept and not request.intercept:  # that of the pooled means
        weights = np.vstack([np.zeros((1, job.num_outputs)), weights])
    keep_linear(job, state, weights)
    return ModelAdopted(num_rows=job.num_rows)


def train_networks(job: LocalJob, request: TrainNetworksRequest) -> TrainedNetworks:
    """Gradient steps of all networks together; the order of batches is drawn from the seed and this client's name."""
    x, y = _training_rows(job, request.network)
    networks = _parameters(job, request.network, request.networks)
    trained, behind = networks.clone(), RowsBehind(job.file.policy.min_rows)
    for apart, places in _by_fold(request).items():
        inside = _folds(job, request.num_folds) != apart - 1 if apart else np.ones(len(x), dtype=bool)
        rows_x, rows_y = (rows[torch.from_numpy(inside).to(rows.device)] for rows in (x, y)) if apart else (x, y)
        trained[places] = train(
            request.network,
            networks[places],
            rows_x,
            rows_y,
            learning_rate=request.learning_rate,
            num_steps=request.num_steps,
            batch_size=request.batch_size,
            weight_decay=request.weight_decay,
            seed=rng.seed(request.seed, "batches", job.client),
            block=None if job.block is None else job.block[inside],
            behind=behind,
        )
    return TrainedNetworks(num_rows=job.num_rows, networks=to_array(trained), kept_back=behind.share)


def score_networks(job: LocalJob, request: ScoreNetworksRequest) -> NetworkScores:
    """Held-out losses of this client's candidates, and their covariance over its rows."""
    x, y = _training_rows(job, request.network)
    count, folds = request.num_candidates, request.num_folds
    if folds < 1 or len(request.networks) != count * folds:
        raise WireError(f"{request.step}: {len(request.networks)} networks for {count} candidates and {folds} folds")
    networks = _parameters(job, request.network, request.networks).reshape(count, folds, -1)
    fold, losses = _folds(job, folds), np.empty((count, len(x)))
    if fold[0] < 0:
        return NetworkScores(
            num_rows=job.num_rows, num_scored=0, losses=np.zeros(count), covariance=np.zeros((count, count))
        )
    for apart in np.unique(fold):
        held = fold == apart
        rows = torch.from_numpy(held).to(x.device)
        losses[:, held] = to_array(row_losses(request.network, networks[:, apart], x[rows], y[rows]))
    sums = sums_of_deviations(losses, personal(job).unit)
    num = sums.shape[1]
    covariance = sums @ sums.T / losses.shape[1] ** 2 * (num / max(1, num - 1))
    return NetworkScores(
        num_rows=job.num_rows, num_scored=job.num_rows, losses=losses.mean(axis=1), covariance=covariance
    )


def watch_networks(job: LocalJob, request: WatchNetworksRequest) -> WatchedNetworks:
    """Mean losses of networks on the rows that are kept apart."""
    x, y = _training_rows(job, request.network)
    networks = _parameters(job, request.network, request.networks)
    apart = _first_fold(job, request.num_folds)
    if not apart.any():
        return WatchedNetworks(num_rows=job.num_rows, losses=np.zeros(len(networks)), watched=False)
    return WatchedNetworks(num_rows=job.num_rows, losses=_losses(request.network, networks, x, y, apart), watched=True)


def keep_network(job: LocalJob, request: KeepNetworkRequest) -> ModelAdopted:
    """Keep the personal network, for `kernfed-client predict`."""
    state = personal(job)
    check_network(job, request.network)
    network = OwnNetwork(request.network, request.parameters, *_target_scale(job))
    state.scorer = network.scores
    if request.weights and state.shared is not None:  # after a restart nobody may have told who the others are
        if len(request.weights) != len(state.shared.clients):
            raise WireError(f"{request.step}: weights of {len(request.weights)} clients")
        state.weights, state.choice = np.array(request.weights), request.choice
    network.keep(job, state.facts())
    return ModelAdopted(num_rows=job.num_rows)


def evaluate_networks(job: LocalJob, request: EvaluateNetworksRequest) -> Evaluation:
    """Metric sums of the personal and the federated network, and of one that this client trains alone."""
    check_network(job, request.network)
    models = {"personal": request.personal, "global": request.federated}
    if request.local_rounds:
        models["local"] = train_alone(job, request)
    scale = _target_scale(job)
    return evaluated(job, {name: OwnNetwork(request.network, p, *scale).scores(job) for name, p in models.items()})


def train_alone(job: LocalJob, request: EvaluateNetworksRequest) -> Floats:
    """Train on this client's rows alone, with the rounds and steps that the federation takes; (P,).

    Where rows are kept apart, the parameters are those of the round with the least loss on these.
    """
    x, y = _training_rows(job, request.network)
    scales = _own_scales(request)
    if scales is not None:
        x = (x - x.new_tensor(scales.centre)) / x.new_tensor(scales.spread)
        y = (y - y.new_tensor(scales.target_centre)) / y.new_tensor(scales.target_spread)
    current = np.asarray(request.start, np.float64)[None]
    state = Adam.start(current.shape)
    apart = _first_fold(job, request.num_folds) if request.num_folds else np.zeros(len(x), dtype=bool)
    inside = torch.from_numpy(~apart).to(x.device)
    rows_x, rows_y = (x[inside], y[inside]) if apart.any() else (x, y)
    best, least = current, math.inf
    for round_num in range(1, request.local_rounds + 1):
        moved = to_array(
            train(
                request.network,
                _parameters(job, request.network, current),
                rows_x,
                rows_y,
                learning_rate=request.learning_rate,
                num_steps=request.num_steps,
                batch_size=request.batch_size,
                weight_decay=request.weight_decay,
                seed=rng.seed(request.seed, "batches", job.client, str(round_num)),
            )
        )
        if request.adam:
            current, state = state.step(current, (current - moved) / request.learning_rate, request.step_size)
        else:
            current = moved
        if apart.any():
            loss = float(_losses(request.network, _parameters(job, request.network, current), x, y, apart)[0])
            if loss < least:
                best, least = current, loss
        else:
            best = current
    alone: Floats = (best if scales is None else scales.to_rows(request.network, best))[0]
    return alone


def _own_scales(request: EvaluateNetworksRequest) -> Scales | None:
    """The scale in which this client trains alone; None: that of all rows.

    Raises:
        WireError: It has another number of columns or outputs than the network.
    """
    told = (request.own_centre, request.own_spread, request.own_target_centre, request.own_target_spread)
    if not any(told):
        return None
    spec = request.network
    columns, outputs = spec.num_columns, spec.num_outputs
    if [len(numbers) for numbers in told] != [columns, columns, outputs, outputs]:
        raise WireError(f"{request.step}: scales that do not fit {columns} columns and {outputs} outputs")
    return Scales(*(np.array([numbers]) for numbers in told))


def _target_scale(job: LocalJob) -> tuple[Floats, Floats]:
    if TASKS[job.task].has_classes:
        return np.zeros(job.num_outputs), np.ones(job.num_outputs)
    request = personal(job).request
    return np.asarray(request.target_mean, np.float64), np.asarray(request.target_deviation, np.float64)


def _training_rows(job: LocalJob, spec: NetworkSpec) -> tuple[Tensor, Tensor]:
    """Standardised columns, and encoded targets (scaled for regression), on this client's device."""
    check_network(job, spec)
    key = ("personal network rows", dtype_of(spec))
    return job.memo(key, lambda: training_rows(job, spec, *_target_scale(job)))


def _by_fold(request: TrainNetworksRequest) -> dict[int, Tensor | slice]:
    """Places of the networks by the fold whose rows they do not see; 0: they see all.

    Raises:
        WireError: It is told of other networks, or of a fold that there is not.
    """
    if not request.held:
        return {0: slice(None)}
    held = np.array(request.held)
    if len(held) != len(request.networks) or held.max() > request.num_folds:
        raise WireError(f"{request.step}: {len(held)} folds for {len(request.networks)} networks, or one too high")
    return {int(apart): torch.from_numpy(np.flatnonzero(held == apart)) for apart in np.unique(held)}


def _folds(job: LocalJob, num_folds: int) -> Integers:
    """Fold of each training row, from 0 on, (n,); copies of a row, and whole blocks of rows, lie in one.

    Where a fold would hold fewer rows than an answer must stand for, no row is in any: -1.
    """
    unit = personal(job).unit if job.block is None else job.block
    order = rng.stream(job.schema.seed, "personalise", "judging", job.client).permutation(len(unit))
    fold = deal(order, unit, num_folds)
    least = max(1, job.file.policy.min_rows)
    return fold if np.bincount(fold, minlength=num_folds).min() >= least else np.full_like(fold, -1)


def _first_fold(job: LocalJob, num_folds: int) -> Flags:
    """Which rows are in the first fold, (n,); none where folds would be too small.

    Raises:
        WireError: There is one fold, which would hold all rows.
    """
    if num_folds < 2:
        raise WireError(f"personalise: {num_folds} folds, of which one is to be kept apart")
    first: Flags = _folds(job, num_folds) == 0
    return first


def _losses(spec: NetworkSpec, networks: Tensor, x: Tensor, y: Tensor, rows: Flags) -> Floats:
    """Mean loss of each network over some rows, (N,); that of a network beyond all numbers is the largest told."""
    some = torch.from_numpy(rows).to(x.device)
    losses = to_array(row_losses(spec, networks, x[some], y[some])).mean(axis=1)
    told: Floats = np.nan_to_num(np.minimum(losses, MOST_LOSS), nan=MOST_LOSS)
    return told


def _parameters(job: LocalJob, spec: NetworkSpec, networks: Array) -> Tensor:
    return torch.tensor(np.asarray(networks), dtype=dtype_of(spec), device=job.device)


def _affine_ridge(job: LocalJob, ridge: float) -> AffineRidge:
    return job.memo(("ridge with intercept", ridge), lambda: AffineRidge(job.train_rows, job.y_train, ridge))


def _problem(job: LocalJob, ridge: float, intercept: bool) -> AffineRidge | LocalRidge:
    return _affine_ridge(job, ridge) if intercept else local_ridge(job, ridge)


def _columns(job: LocalJob, array: Array, intercept: bool, step: str) -> Tensor:
    want = job.train_rows.shape[1] + int(intercept)
    if array.shape[0] != want:
        raise InvalidTensorError(f"{step}: {array.shape[0]} inputs, but this client has {want}")
    return torch.tensor(array, dtype=torch.float64, device=job.device)


STEPS: dict[type[Any], Any] = {
    PersonalStartRequest: newton_start,
    PersonalStepsRequest: newton_steps,
    PersonalProductsRequest: hessian_products,
    KeepModelRequest: keep_model,
    TrainNetworksRequest: train_networks,
    KeepNetworkRequest: keep_network,
    ScoreNetworksRequest: score_networks,
    WatchNetworksRequest: watch_networks,
    EvaluateNetworksRequest: evaluate_networks,
}
"""Steps of this module, by the request that they answer."""
