"""A client's round of Per-FedAvg: adapt to the last row, predict the next, move the network by the gradient there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.errors import DivergedError, InvalidTensorError
from kernfed.methods.online import meta
from kernfed.methods.online.meta_messages import MetaStep, MetaStepRequest
from kernfed.methods.online.server_step import MOST_PARAMETER, RUN_AWAY
from kernfed_client.methods.online import answers
from kernfed_client.methods.online.guard import Moved
from kernfed_client.methods.online.learning import OnlineClient
from kernfed_client.methods.online.network_rows import RowsOfNumbers
from kernfed_client.methods.online.round_rows import Taken
from kernfed_client.methods.online.state import ClientState


def meta_step(client: OnlineClient, request: MetaStepRequest) -> MetaStep:
    """Answer a round's question.

    Raises:
        InvalidTensorError: The weights do not fit the network.
        DivergedError: The rates let the network run away.
    """
    hidden, rules = request.hidden, client.rules
    if len(request.weights) != meta.num_weights(client.state.theta.shape[1] - 1, hidden):
        raise InvalidTensorError(f"{request.step}: {len(request.weights)} weights do not fit this network")
    digest = client.digest(b"meta", request.round_num, request.weights, request.batch_rows)
    kept = client.keeper.answered(request.round_num, digest, request.uncounted_from)
    if kept is not None:
        return MetaStep(**answers.fields(kept))
    state = client.keeper.before(request.round_num, request.uncounted_from)

    def adapted(weights: Floats, last: Array, rows: RowsOfNumbers) -> Floats:
        if not len(last):
            return weights
        x, y = last[0, :-1], float(last[0, -1])
        return weights - request.adaptation_rate * rows.kept(meta.gradient(weights, x, y, hidden))

    def predict(x: Floats) -> float:
        told = meta.predict(adapted(request.weights, state.theta, RowsOfNumbers(1, hidden)), x, hidden)
        return rules.target_low + rules.target_span * told

    def walked(state: ClientState, taken: Taken, rows: RowsOfNumbers) -> Moved:
        """Learn the rows one by one; only the numbers that `rows` allows move, in the adaptation as well."""
        weights, last, tally = request.weights, state.theta, state.learner.tally
        scaled = [x if number < 0 else client.scaled(x) for x, number in zip(taken.x, taken.numbers, strict=True)]
        for x, y, before in zip(scaled, taken.y.tolist(), taken.told.tolist(), strict=True):
            personal = adapted(weights, last, rows)
            target = (y - rules.target_low) / rules.target_span
            f = meta.predict(personal, x, hidden)
            if not abs(f) <= MOST_PARAMETER:  # weights that came are sound, so it is the rates
                raise DivergedError(RUN_AWAY.format(MOST_PARAMETER))
            told = before if before == before else rules.target_low + rules.target_span * f
            tally = tally.add(told, y, (f - target) ** 2, binary=rules.binary)
            rows.add(personal, x)
            weights = weights - request.learning_rate * rows.kept(meta.gradient(personal, x, target, hidden))
            last = np.append(x, target)[None]
        return Moved(replace(state.learner, tally=tally), last, {"weights": weights})

    def learn(state: ClientState, taken: Taken) -> Moved:
        rows = RowsOfNumbers(client.least_rows, hidden)
        moved = walked(state, taken, rows)
        while rows.narrowed():
            moved = walked(state, taken, rows)
        return moved

    taken = client.taker.take(state, request.batch_rows, request.wait_s, predict)
    unmoved = Moved(state.learner, state.theta, {"weights": np.empty(0)})
    taken, moved = client.guard.learned(state, taken, learn, unmoved)
    return MetaStep(**answers.fields(client.close(request.round_num, digest, state, taken, moved)))
