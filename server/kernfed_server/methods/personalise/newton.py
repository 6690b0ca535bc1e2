"""Personal ridge models from gradients and Hessian solves, all targets at once.

Model t minimises Σ_k w_tk F_k: the pooled problem of FedNewton with w_tk in place of the rows' shares. Its block
conjugate gradients need two trips a round; a client answers for all models that weigh it with one factor of its
Hessian.

A personal model has an intercept of its own, the coefficient of the constant 1 before the features, which the ridge
does not count. The model of all rows alike has that of the pooled means: its coefficient of the constant is held at 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernfed.arrays import Array, Flags, Floats
from kernfed.errors import JobError
from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.base import R, Request
from kernfed.maths.newton import BlockConjugateGradients, not_of_its_start
from kernfed.methods.personalise.plausible import impossible_start
from kernfed.methods.personalise.training_messages import (
    KeepModelRequest,
    PersonalProductsRequest,
    PersonalStart,
    PersonalStartRequest,
    PersonalStepsRequest,
)
from kernfed.methods.ridge.messages import NewtonStart, NewtonStartRequest
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.state import State
from kernfed_server.methods.personalise.choosing import find_weights
from kernfed_server.methods.personalise.state import Collaboration, Targets, targets_of, weighted_sums, without
from kernfed_server.methods.personalise.weights import Personalisation


async def train_newton(job: Personalisation, found: Collaboration | None) -> Array:
    """Round 1 finds the weights; then rounds until every model is within the tolerance of its optimum.

    Returns the model of all rows alike, shape (M, C).
    """
    solver: _Solver | None = None
    if found is not None and job.run.resumed is not None:
        solver = _Solver.from_arrays(job, found, job.run.resumed)
        if solver.finished:
            return solver.federated
    async for round_num in job.run.rounds(job.settings.rounds):
        if found is None:
            await find_weights(job)
            found = await job.told_weights(needed=True)
            solver = _Solver.start(job, found)
            await job.run.record(round_num, {**found.to_arrays(), **solver.to_arrays()}, RoundMetrics())
            continue
        assert solver is not None  # noqa: S101  # made with the weights
        await solver.turn()
        last = solver.finished or round_num == job.settings.rounds
        metrics = RoundMetrics(training={"largest_relative_distance_bound": solver.largest_bound()})
        if last:
            metrics = await _deliver(job, found, solver, metrics)
        await job.run.record(round_num, {**found.to_arrays(), **solver.to_arrays()}, metrics)
        if last:
            break
    if solver is None:
        raise JobError("no weights were found")
    return solver.federated


async def _deliver(job: Personalisation, found: Collaboration, solver: _Solver, metrics: RoundMetrics) -> RoundMetrics:
    weights = solver.weights
    job.run.ends(_arrival(job, solver))
    present = set(job.cohort.clients)
    own = {
        c: KeepModelRequest(weights=weights[i], intercept=solver.intercept)
        for i, c in enumerate(solver.targets.names)
        if c in present
    }
    await job.run.optional(job.ask_each_learner(own), "not all clients could keep their models")
    result = metrics.merged(await job.measure(solver.federated))
    job.publish(found, result)
    return result


def _arrival(job: Personalisation, solver: _Solver) -> Arrival:
    """How far the model that is farthest from its optimum is, and why training stopped."""
    bound, asked = solver.largest_bound(), job.settings.tolerance
    measure = "largest relative distance of a model to its optimum, at most"
    told = f"the largest relative distance of a model to its optimum is at most {bound:.2g}"
    if bound <= asked:
        return Arrival(told, True, bound, measure)
    if solver.finished:
        why = f"no direction is left that rounding does not hide, though {asked:g} is asked for"
        return Arrival(f"{why}; {told}; give method.ridge a larger value", False, bound, measure)
    used = f"all {job.settings.rounds} rounds are used up, and {asked:g} is asked for"
    return Arrival(f"{used}; {told}; raise method.rounds", False, bound, measure)


@dataclass
class _Solver:
    """Conjugate gradients of all targets. T models over B clients, M inputs, C outputs."""

    job: Personalisation
    clients: tuple[str, ...]
    targets: Targets
    mix: Floats
    """Weights that are trained with, shape (T, B); less than the targets' where clients have fallen out."""
    own: Floats
    """The clients' own solutions, shape (B, M, C); before the first trip of shape (0, ...)."""
    moments: Floats
    """c_k, shape (B, M, C)."""
    states: dict[int, BlockConjugateGradients] = field(default_factory=dict)
    """By target; one without is started in the next turn."""
    bounds: Floats = field(default_factory=lambda: np.zeros(0))
    """Certified relative distances, shape (T,); infinity where not known."""
    done: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def start(cls, job: Personalisation, found: Collaboration) -> _Solver:
        """Before the first trip."""
        targets = job.targets(found)
        num_inputs = job.setup.num_features + int(job.setup.intercept)
        none = np.zeros((0, num_inputs, job.setup.num_outputs))
        count = len(targets.mix)
        return cls(
            job, found.clients, targets, targets.mix, none, none, {}, np.full(count, np.inf), np.zeros(count, bool)
        )

    @property
    def finished(self) -> bool:
        """Whether every model is done."""
        return bool(self.done.all())

    @property
    def shape(self) -> tuple[int, int]:
        """(M, C)."""
        return self.own.shape[1], self.own.shape[2]

    @property
    def intercept(self) -> bool:
        """Whether the first input is the constant 1. Runs that began under an earlier release go on without it."""
        return self.shape[0] > self.job.setup.num_features

    def largest_bound(self) -> float:
        """The largest certified relative distance that is known; 1 before any is."""
        known = self.bounds[np.isfinite(self.bounds)]
        return float(known.max()) if known.size else 1.0

    @property
    def weights(self) -> list[Floats]:
        """Models, each of shape (M, C), the global one at last."""
        return [self.states[t].weights if t in self.states else np.zeros(self.shape) for t in range(len(self.mix))]

    @property
    def federated(self) -> Floats:
        """The model of all rows alike, on centred features."""
        return self.weights[-1][int(self.intercept) :]

    async def turn(self) -> None:
        """A round: start what is not started, step what is."""
        if not len(self.own):
            await self._ask_start()
        fresh = [t for t in range(len(self.mix)) if t not in self.states and not self.done[t]]
        going = [t for t in self.states if not self.done[t]]
        directions: dict[int, Floats] = {}
        if going:
            residuals = {t: self.states[t].residual for t in going}
            steps = await self._trip(
                residuals,
                lambda ridge, r: PersonalStepsRequest(ridge=ridge, residuals=r, intercept=self.intercept),
                lambda reply: reply.steps,
                solve=True,
            )
            for t, step in steps.items():
                state = self.states[t]
                self.bounds[t] = state.relative_bound(step)
                if self.bounds[t] <= self.job.settings.tolerance:
                    self.done[t] = True
                else:
                    directions[t] = step
        for t in fresh:
            directions[t] = self._starting_point(t)
        if not directions:
            return
        products = await self._products(directions)
        stalled = await asyncio.to_thread(self._absorb, directions, products)
        if stalled:
            await self._restart(stalled)

    async def _restart(self, targets: list[int]) -> None:
        """Compute residuals anew where directions ran out; where that was done and gave little, a model is done."""
        again = {t: self.states[t].weights for t in targets if not self.states[t].stalls(self.bounds[t])}
        for t in set(targets) - again.keys():
            self.done[t] = True
        if again:
            products = await self._products(again)
            for t, product in products.items():
                self.states[t] = self.states[t].restarted(product, float(self.bounds[t]))

    async def _products(self, directions: Mapping[int, Floats]) -> dict[int, Floats]:
        return await self._trip(
            directions,
            lambda ridge, z: PersonalProductsRequest(ridge=ridge, directions=z, intercept=self.intercept),
            lambda reply: reply.products,
        )

    def _absorb(self, directions: Mapping[int, Floats], products: Mapping[int, Floats]) -> list[int]:
        """Take steps; returns the targets whose directions gave nothing new."""
        eps, stalled = self.job.cohort.float_epsilon, []
        for t, product in products.items():
            if t in self.states:
                if self.states[t].absorb(directions[t], product) == 0:
                    stalled.append(t)
                continue
            moment = self._held(t, np.tensordot(self.mix[t], self.moments, 1))
            self.states[t] = BlockConjugateGradients.start(directions[t], product, moment, eps)
        return stalled

    def _starting_point(self, target: int) -> Floats:
        return self._held(target, np.tensordot(self.mix[target], self.own, 1))

    def _held(self, target: int, columns: Floats) -> Floats:
        """Columns of a target, on those inputs that its model uses: the global one leaves out the constant."""
        if self.intercept and target == len(self.mix) - 1:
            columns[0] = 0.0
        return columns

    async def _ask_start(self) -> None:
        """The clients' own solutions and moments, once."""
        ridge, (num_inputs, num_outputs) = ridge_of(self.job.settings), self.shape
        replies: Mapping[str, NewtonStart | PersonalStart]
        if self.intercept:
            started = PersonalStartRequest(ridge=ridge, num_inputs=num_inputs, num_outputs=num_outputs)
            known = self.job.statistics if self.job.basis is None else {}

            def refusing(client: str, reply: PersonalStart) -> Iterable[str]:
                return impossible_start(reply, known[client]) if client in known else ()

            own = await self.job.cohort.ask(started, clients=self._present(), everyone=True, refusing=refusing)
            replies = own
        else:
            request = NewtonStartRequest(ridge=ridge, num_features=num_inputs, num_outputs=num_outputs)
            replies = await self.job.cohort.ask(request, clients=self._present(), everyone=True)
        self.own = np.zeros((len(self.clients), *self.shape))
        self.moments = np.zeros_like(self.own)
        for k, client in enumerate(self.clients):
            if client in replies:
                self.own[k], self.moments[k] = replies[client].weights, replies[client].moment
        self._drop([client for client in self.clients if client not in replies])

    async def _trip(
        self,
        columns: Mapping[int, Floats],
        request: Callable[[float, Floats], Request[R]],
        read: Callable[[R], Floats],
        *,
        solve: bool = False,
    ) -> dict[int, Floats]:
        """Send each client the matrices of the targets that weigh it; weighted sums of what comes back, per target.

        What comes back has to be of the client's own problem, whose solution and moment are known. Where a client
        falls out, its targets go on without it from a fresh start, and are not in the result.

        Args:
            columns: By target, shape (M, C).
            request: (ridge, matrices side by side) -> what a client is asked.
            read: What it answers.
            solve: Whether that is H⁻¹ of what was sent; else H times it.
        """
        order = sorted(columns)
        rows = self.mix[order]
        ridge = ridge_of(self.job.settings)
        sent = {}
        for k, client in enumerate(self.clients):
            weighing = [t for t, w in zip(order, rows[:, k], strict=True) if w > 0]
            if weighing:
                sent[client] = np.concatenate([columns[t] for t in weighing], axis=1)
        requests = {client: request(ridge, stacked) for client, stacked in sent.items()}

        def refusing(client: str, reply: R) -> Iterable[str]:
            k, pair = self.clients.index(client), (sent[client], read(reply))
            return not_of_its_start(self.own[k], self.moments[k], *(reversed(pair) if solve else pair))

        replies = await self.job.cohort.ask_each(requests, everyone=True, refusing=refusing)
        c = self.shape[1]
        parts = {}
        for k, client in enumerate(self.clients):
            if client in replies:
                stacked = read(replies[client])
                parts[k] = stacked.reshape(stacked.shape[0], -1, c).transpose(1, 0, 2)
        lost = [client for client in requests if client not in replies]
        affected = self._drop(lost)
        sums = weighted_sums(rows, parts, self.shape)
        return {t: self._held(t, sums[i]) for i, t in enumerate(order) if t not in affected}

    def _present(self) -> list[str]:
        members = set(self.job.cohort.clients)
        return [client for client in self.clients if client in members]

    def _drop(self, lost: list[str]) -> set[int]:
        """Go on without clients; returns the targets that weighed one."""
        if not lost:
            return set()
        indices = [self.clients.index(client) for client in lost]
        affected = {int(t) for t in np.flatnonzero((self.mix[:, indices] > 0).any(axis=1))}
        for client in lost:
            why = self.job.cohort.why_missing(client)
            self.job.say(f"{client} is out of training from here on; models that weighed it go on without: {why}")
        self.mix = without(self.mix, indices)
        for t in affected:
            self.states.pop(t, None)
            self.bounds[t] = np.inf
            self.done[t] = not self.mix[t].any()
        return affected

    def to_arrays(self) -> dict[str, Array]:
        """All that a resumed run needs."""
        out: dict[str, Array] = {
            "mix": self.mix,
            "own": self.own,
            "moments": self.moments,
            "bounds": np.where(np.isfinite(self.bounds), self.bounds, -1.0),
            "done": self.done,
            "started": np.array([t in self.states for t in range(len(self.mix))], dtype=bool),
        }
        for t, state in self.states.items():
            out |= {f"target-{t}/{name}": array for name, array in state.to_arrays().items()}
        return out

    @classmethod
    def from_arrays(cls, job: Personalisation, found: Collaboration, state: State) -> _Solver:
        """Go on where an earlier life had come to; clients that are gone are dropped."""
        bounds = np.array(state["bounds"], dtype=np.float64)
        solver = cls(
            job,
            found.clients,
            targets_of(found, job.settings.min_weight),
            np.array(state["mix"], dtype=np.float64),
            np.array(state["own"], dtype=np.float64),
            np.array(state["moments"], dtype=np.float64),
            {},
            np.where(bounds < 0, np.inf, bounds),
            np.array(state["done"], dtype=bool),
        )
        for t in np.flatnonzero(state["started"]):
            solver.states[int(t)] = BlockConjugateGradients.from_arrays(state.part(f"target-{t}/"))
        gone = [c for k, c in enumerate(found.clients) if c not in job.cohort.clients and solver.mix[:, k].any()]
        solver._drop(gone)
        return solver
