"""The client's half of personalisation: embed, share, find the weights of this client, keep its model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernfed.arrays import Floats
from kernfed.errors import InvalidTensorError, JobStateMissingError, WireError
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.maths.clipping import clip_rows
from kernfed.maths.folds import units
from kernfed.maths.statistics import moments
from kernfed.maths.triangles import unpack
from kernfed.methods.personalise.choice import candidates
from kernfed.methods.personalise.crossfit import Target
from kernfed.methods.personalise.crossfit_messages import AdoptRequest, CrossfitRequest, CrossfitScores
from kernfed.methods.personalise.embedding_messages import (
    ClientEmbedding,
    ColumnMoments,
    ColumnMomentsRequest,
    EmbedRequest,
    SharePointsRequest,
)
from kernfed.methods.personalise.embeddings import embed, target_terms
from kernfed.methods.personalise.gains import spread_of, theorem_constant
from kernfed.methods.personalise.messages import (
    AllowKeepingRequest,
    CollaborationWeights,
    EvaluatePersonalRequest,
    Factor,
    FactorRequest,
    KeepAllowed,
    ModelAdopted,
    ProjectRequest,
    Shared,
    ShareRequest,
    SolveModelRequest,
    SolveWeightsRequest,
    Statistics,
    StatisticsRequest,
    TellWeightsRequest,
    WeightsSolved,
)
from kernfed.methods.personalise.noise import add_noise
from kernfed.methods.personalise.q_aggregation.paper import FEATURE_BOUND, PAPER_FACTOR, PAPER_STEPS
from kernfed.methods.personalise.q_aggregation.weights import (
    Constants,
    linear_term,
    solve_exact,
    solve_paper,
)
from kernfed.tensors.linalg import cholesky
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.personalise.embedded import share_points
from kernfed_client.methods.personalise.state import Personal, all_columns, begin, noise_stream, personal, release
from kernfed_client.models.own_model import keep_own_model
from kernfed_client.steps.evaluation import evaluated, predict


def column_moments(job: LocalJob, request: ColumnMomentsRequest) -> ColumnMoments:
    """Mean and squared deviations of the columns x and y."""
    columns = all_columns(job)
    if columns.shape[1] != request.num_columns:
        raise WireError(f"{request.step}: {request.num_columns} columns, this client has {columns.shape[1]}")
    found = moments(clip_rows(columns)[0] if job.schema.clipped else columns)
    return ColumnMoments(
        num_rows=job.num_rows,
        mean=found.mean,
        sum_squares=found.sum_squares,
        deviation=tuple(found.deviation.tolist()),
        mean_rest=tuple(found.rest.tolist()),
    )


def embed_rows(job: LocalJob, request: EmbedRequest) -> ClientEmbedding:
    """Mean embedding of the rows, noised where the job asks for it.

    Raises:
        PolicyError: Another noised embedding of these rows has left in this job.
    """
    state = begin(job, request)
    found, more = embed(state.embedded), len(state.beside.phi)
    num_embedded = len(state.phi) + more if more else 0
    if request.noise_factor > 0:  # all else would be told without noise
        exact, draw = found, noise_stream(job, request)
        found = release(job, request, lambda: add_noise(exact, request.noise_factor, FEATURE_BOUND, draw))
        return ClientEmbedding(num_rows=job.num_rows, mean=found.mean, trace=found.trace, num_embedded=num_embedded)
    spread = spread_of(state.embedded)
    return ClientEmbedding(
        num_rows=job.num_rows,
        mean=found.mean,
        trace=found.trace,
        num_different=len(np.unique(units(all_columns(job)))),
        largest=min(spread.largest, found.trace),
        square=spread.square,
        num_embedded=num_embedded,
    )


def statistics(job: LocalJob, request: StatisticsRequest) -> Statistics:
    """Normal equations of the ridge model on this client's rows."""
    state = personal(job)
    state.basis = None
    return _statistics(job, state, request)


def factor(job: LocalJob, request: FactorRequest) -> Factor:
    """Normal equations of the ridge model on this client's rows, the matrix as the triangular factor of its inputs."""
    state = personal(job)
    x, y = state.inputs, state.targets
    _check_sizes(x, y, request)
    return Factor(num_rows=job.num_rows, factor=np.linalg.qr(x, mode="r") / np.sqrt(len(x)), moment=x.T @ y / len(x))


def project(job: LocalJob, request: ProjectRequest) -> Statistics:
    """Go on with the features in the directions given; the normal equations of these."""
    state = personal(job)
    state.use_directions(request.basis, request.step)
    return _statistics(job, state, request)


def _check_sizes(x: Floats, y: Floats, request: StatisticsRequest | FactorRequest | ProjectRequest) -> None:
    if (request.num_inputs, request.num_outputs) != (x.shape[1], y.shape[1]):
        raise WireError(
            f"{request.step}: {request.num_inputs} inputs and {request.num_outputs} outputs, but this client has "
            f"{x.shape[1]} and {y.shape[1]}"
        )


def _statistics(job: LocalJob, state: Personal, request: StatisticsRequest | ProjectRequest) -> Statistics:
    _check_sizes(state.used, state.targets, request)
    gram, moment, square = state.normal_equations()
    return Statistics(num_rows=job.num_rows, gram=gram, moment=moment, square=square)


def share(job: LocalJob, request: ShareRequest) -> Shared:
    """Keep what everyone has shared."""
    state = personal(job)
    if request.means.shape[1] != state.phi.shape[1] or not (request.num_rows > 0).all():
        raise InvalidTensorError(
            f"{request.step}: embeddings of {request.means.shape[1]} numbers, this client's has {state.phi.shape[1]}; "
            "or a client without rows"
        )
    if request.num_embedded and len(request.num_embedded) != len(request.clients):
        wrong = f"{len(request.num_embedded)} numbers of rows for {len(request.clients)} clients"
        raise WireError(f"{request.step}: {wrong}")
    for given in request.directions:
        state.use_directions(given.basis, request.step)
    state.shared, state.of_all, state.weights, state.scorer = request, None, None, None
    state.fits.clear()
    state.index(job)
    return Shared(num_rows=job.num_rows)


def solve_weights(job: LocalJob, request: SolveWeightsRequest) -> WeightsSolved:
    """Q-aggregation with this client as target: its own points make the penalties, its own embedding has no noise."""
    state = personal(job)
    teachers = state.teachers(job)
    t = teachers.index(state.index(job))
    means = np.array(state.needed_shared().means, dtype=np.float64)[teachers]
    terms = target_terms(state.embedded, means)
    means[t] = state.embedded.mean(axis=0)
    terms.spread[t] = terms.distance[t] = 0.0
    theorem = theorem_constant(len(teachers), terms.num_rows)
    constants = Constants(theorem if request.theorem_q else request.c_q, theorem if request.theorem_p else request.c_p)
    linear = linear_term(terms, t, constants, request.bound)[:, None]
    gram, targets = means @ means.T, np.array([t])
    if request.exact:
        found = solve_exact(gram, targets, linear)
    else:
        found = solve_paper(gram, targets, linear, request.steps or PAPER_STEPS, request.step_factor or PAPER_FACTOR)
    state.learn(job, found.weights[:, 0], "")
    return WeightsSolved(num_rows=job.num_rows, gap=float(found.gap[0]))


def crossfit(job: LocalJob, request: CrossfitRequest) -> CrossfitScores:
    """Held-out errors of the next stage's candidates, summed over this client's rows."""
    found = _target(job, request).scores(request.decisions)
    return CrossfitScores(
        num_rows=job.num_rows,
        num_clients=1,
        losses=found.losses,
        squared_differences=found.squared_differences,
        variances=found.variances,
    )


def adopt(job: LocalJob, request: AdoptRequest) -> ModelAdopted:
    """Choose, and keep the weights and the model that follow."""
    state = personal(job)
    target, decisions = _target(job, request), request.decisions
    if not decisions:
        raise WireError(f"{request.step}: no decision to follow")
    found = target.adopt(decisions)
    own_way = "; its own rows say so" if found.index != decisions[-1].pooled else ""
    if target.is_small:
        own_way = "; the common choice, for it has too few rows"
    state.learn(job, found.weights, f"{found.candidate.words}{own_way}")
    keep_linear(job, state, state.expanded(found.coefficients))
    state.fits.clear()
    return ModelAdopted(num_rows=job.num_rows)


def solve_model(job: LocalJob, request: SolveModelRequest) -> ModelAdopted:
    """Ridge on the mixture with this client's weights: (Σ w_k X_k'X_k/n_k + ridge I) W = Σ w_k X_k'Y_k/n_k.

    The ridge does not count the constant among the inputs X, so the model's intercept is that of the mixture: features
    and targets are centred by the mixture's means.

    Raises:
        JobStateMissingError: There are no weights yet.
        WireError: No normal equations were shared.
        NotPositiveDefiniteError: The matrix is singular to working precision.
    """
    state = personal(job)
    weights, shared = _weights(state)[state.teachers(job)], state.sums(job)
    gram, moment = unpack(weights @ shared.grams, state.used.shape[1]), np.tensordot(weights, shared.moments, 1)
    if not state.request.intercept:
        keep_linear(job, state, state.expanded(_ridge_solution(gram, moment, request.ridge)))
        return ModelAdopted(num_rows=job.num_rows)
    mean, target_mean = gram[1:, :1], moment[:1]
    solved = _ridge_solution(gram[1:, 1:] - mean @ mean.T, moment[1:] - mean @ target_mean, request.ridge)
    keep_linear(job, state, state.expanded(np.vstack([target_mean - mean.T @ solved, solved])))
    return ModelAdopted(num_rows=job.num_rows)


def tell_weights(job: LocalJob, request: TellWeightsRequest) -> CollaborationWeights:
    """The weights that were found."""
    state = personal(job)
    weights = _weights(state)
    if len(weights) != request.num_clients:
        raise WireError(f"{request.step}: weights of {request.num_clients} clients, this client has {len(weights)}")
    return CollaborationWeights(num_rows=job.num_rows, weights=weights, choice=state.choice)


def allow_keeping(job: LocalJob, request: AllowKeepingRequest) -> KeepAllowed:
    """Allow it: the policy, which is asked before any step runs, does."""
    del request
    return KeepAllowed(num_rows=job.num_rows)


def evaluate_personal(job: LocalJob, request: EvaluatePersonalRequest) -> Evaluation:
    """Metric sums of the personal model."""
    scorer = personal(job).scorer
    if scorer is None:
        raise JobStateMissingError(f"{request.step}: this client has no personal model yet")
    return evaluated(job, {"personal": scorer(job)})


def keep_linear(job: LocalJob, state: Personal, coefficients: Floats) -> None:
    """Keep a personal model on features, here and in the client's state folder.

    Args:
        job: Of this client.
        state: Of the job.
        coefficients: Of the inputs, (Q, C); the first row is an intercept where there is one.
    """
    first = 1 if state.request.intercept else 0
    weights = np.ascontiguousarray(coefficients[first:])
    offset = coefficients[0] if first else np.zeros(weights.shape[1])
    state.scorer = lambda of: predict(of, weights) + offset
    keep_own_model(job, weights, offset, state.facts())


def _weights(state: Personal) -> Floats:
    if state.weights is None:
        raise JobStateMissingError("this client has no collaboration weights yet; prepare it again")
    return state.weights


def _ridge_solution(gram: Floats, moment: Floats, ridge: float) -> Floats:
    left = torch.from_numpy(gram + ridge * np.eye(len(gram)))
    solved: Floats = cholesky(left, name="mixture of Hessians").solve(torch.from_numpy(moment)).numpy()
    return solved


def _target(job: LocalJob, request: CrossfitRequest | AdoptRequest) -> Target:
    """The client's candidates, after those of each stage were held against the decisions.

    Raises:
        WireError: A decision names a candidate that its stage does not have.
    """
    made = personal(job).target(job, request.grid)
    for stage, d in enumerate(request.decisions):
        if max(d.pooled, d.local, *d.alternatives) >= len(candidates(made.grid, stage)):
            raise WireError(f"personalise.crossfit: a decision names candidates that stage {stage} does not have")
    return made


STEPS: dict[type[Any], Any] = {
    SharePointsRequest: share_points,
    ColumnMomentsRequest: column_moments,
    EmbedRequest: embed_rows,
    StatisticsRequest: statistics,
    FactorRequest: factor,
    ProjectRequest: project,
    ShareRequest: share,
    SolveWeightsRequest: solve_weights,
    CrossfitRequest: crossfit,
    AdoptRequest: adopt,
    SolveModelRequest: solve_model,
    TellWeightsRequest: tell_weights,
    AllowKeepingRequest: allow_keeping,
    EvaluatePersonalRequest: evaluate_personal,
}
"""Steps of this module, by the request that they answer."""
