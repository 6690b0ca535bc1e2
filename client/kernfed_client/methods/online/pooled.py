"""A client's round with ridges on the rows of all clients: predict and learn its rows, and send their statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.errors import InvalidTensorError
from kernfed.methods.online.learner import Batch
from kernfed.methods.online.losses import LOSSES
from kernfed.methods.online.own_model import own_features
from kernfed.methods.online.pooled_messages import PooledStep, PooledStepRequest
from kernfed.methods.online.pooled_ridge import KEEPS, CommonRidges, factor
from kernfed_client.methods.online import answers
from kernfed_client.methods.online.guard import Moved
from kernfed_client.methods.online.learning import OnlineClient
from kernfed_client.methods.online.round_rows import Taken
from kernfed_client.methods.online.state import ClientState


def pooled_step(client: OnlineClient, request: PooledStepRequest) -> PooledStep:
    """Answer a round's question.

    Raises:
        InvalidTensorError: The parameters do not fit the kernels that were drawn.
    """
    features, rules, newest = client.own_features, client.rules, client.keeper.newest
    if features is None or request.theta.shape != newest.theta.shape:
        raise InvalidTensorError(f"{request.step}: parameters of shape {request.theta.shape}, want other kernels")
    digest = client.digest(
        b"pooled",
        request.round_num,
        request.theta,
        request.rows,
        np.array([request.evidence, request.num_evident]),
        request.batch_rows,
    )
    kept = client.keeper.answered(request.round_num, digest, request.uncounted_from)
    if kept is not None:
        return _reply(kept)
    common = CommonRidges(np.array(request.theta, dtype=np.float64), np.array(request.rows, dtype=np.float64))
    before = client.keeper.before(request.round_num, request.uncounted_from)
    learner = before.learner.beside(_others(request, before))
    state = replace(before.moved_to(common.theta, request.round_num), learner=learner)

    def predict(x: Floats) -> float:
        z = own_features(features.of_row(x))
        return state.learner.predict(rules, common.predict(z), None, z)

    def learn(state: ClientState, taken: Taken) -> Moved:
        z = own_features(features.of_rows(taken.x, taken.numbers))
        learned = state.learner.learn_pooled(rules, Batch(z, taken.y, taken.told, z), common)
        of_all_rows = learned.f.reshape(len(z), *common.theta.shape[:2])[:, KEEPS.index(1.0)]
        sent = factor(z, learned.y, of_all_rows, LOSSES[rules.loss])
        evidence = np.array(learned.learner.evidence)
        return Moved(learned.learner, learned.common.theta, {"factor": sent, "evidence": evidence})

    taken = client.taker.take(state, request.batch_rows, request.wait_s, predict)
    nothing = {"factor": np.zeros((request.num_kernels, 0)), "evidence": np.array(state.learner.evidence)}
    unmoved = Moved(state.learner, state.theta, nothing)
    taken, moved = client.guard.learned(state, taken, learn, unmoved)
    return _reply(client.close(request.round_num, digest, state, taken, moved))


def _others(request: PooledStepRequest, before: ClientState) -> float:
    """Deviations of all other clients together; those of this client were told if it took part before."""
    counted = before.round_num > 0
    num = request.num_evident - counted
    total = request.evidence - (before.learner.evidence if counted else 0.0)
    return total / math.sqrt(num) if num > 0 else 0.0


def _reply(kept: Mapping[str, Array]) -> PooledStep:
    fields = answers.fields(kept)
    return PooledStep(**{**fields, "evidence": float(fields["evidence"])})
