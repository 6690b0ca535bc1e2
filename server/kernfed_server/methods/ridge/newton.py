"""FedNewton on the ridge objective: the pooled solution in a few rounds of the clients' own Hessian solves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import DivergedError
from kernfed.features.kernels import MOST_SQUARE, RANDOM_KERNELS
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics, Scores
from kernfed.federation.messages.base import R, Request
from kernfed.maths.newton import BlockConjugateGradients, PaperNewton, not_a_gradient
from kernfed.methods.ridge.messages import (
    Gradient,
    GradientRequest,
    HessianProductRequest,
    NewtonStart,
    NewtonStartRequest,
    NewtonStepRequest,
)
from kernfed.wording import listed
from kernfed_server.jobs.arrival import DISTANCE, Arrival
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.evaluation import evaluate
from kernfed_server.jobs.run import Members, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import names_array
from kernfed_server.jobs.summing import mean_of_everyone
from kernfed_server.methods.ridge.bounds import largest_of_newton
from kernfed_server.methods.ridge.differences import tell_differences

_NO_MOMENT = np.empty((0, 0))
"""Stands for a moment that has to be asked for again."""


@dataclass(frozen=True, slots=True)
class NewtonPlan:
    """How FedNewton runs on ridge problems."""

    ridge: float
    rounds: int
    stop_at: float
    """Certified relative distance to the pooled solution below which it stops."""
    paper: bool = False
    """The paper's step, which may diverge; else preconditioned conjugate gradients, which cannot."""
    client_weights: Mapping[str, float] | None = None
    """Of the clients in means; None: by training rows."""
    differences: bool = False
    """Whether it is told before round 1 how different clients are."""


async def run(setup: Setup, plan: NewtonPlan, cohort: Cohort, run: Run) -> Array | None:
    """Find the pooled ridge solution W* of H W = c, H = Σ p_j H_j, without pooling a row.

    What leaves a client: its own solution and moment c_j at the start (`model_update`, `gradient`), then in each round
    H_j⁻¹ R and H_j Z, or its gradient (`newton_step`, `gradient`). The coordinator learns these per client, and W*; in
    a job with secure sums it learns their means alone, and all clients are waited for.

    Source: FedNewton paper, Algorithm 1; without `paper` its messages precondition conjugate gradients, see
    `kernfed.maths.newton.BlockConjugateGradients`.
    """
    if plan.paper and run.resumed is None:
        _warn_few_rows(setup, run)
    if plan.differences and run.resumed is None:
        await tell_differences(setup, plan.ridge, cohort, run)
    method = _paper if plan.paper else _auto
    return await method(_Problem(setup, plan, cohort, run))


def _warn_few_rows(setup: Setup, run: Run) -> None:
    few = [client for client, rows in setup.agreed.num_rows.items() if rows < setup.num_features]
    if few:
        run.note(
            f"{listed(few)}: fewer rows than the {setup.num_features} features; "
            'the paper\'s step may diverge, and is stopped where it does; step = "auto" cannot'
        )


async def _auto(problem: _Problem) -> Array | None:
    run, rounds = problem.run, problem.plan.rounds
    solver: BlockConjugateGradients | None = None
    weights = problem.first_weights()
    members: Members = problem.clients
    if run.resumed:
        solver, recorded = BlockConjugateGradients.from_arrays(run.resumed), run.resumed.names("members")
        weights = solver.weights
        if run.resumed.flag("finished"):
            return weights
        members = problem.still_here(recorded)
        if members != recorded:
            solver = None
    async for round_num in run.rounds(rounds):
        finished = stalled = False
        training: dict[str, float] = {}
        if solver is None:
            solver, members = await _start(problem, weights, members)
        else:
            z, answered = await problem.mean(NewtonStepRequest(ridge=problem.ridge, gradient=solver.residual), members)
            complete, bound = answered == members, math.inf
            if complete:  # with a part of them it is no bound
                bound = training["relative_distance_bound"] = solver.relative_bound(z.newton_step)
                finished = bound <= problem.plan.stop_at
            if not finished:
                request = HessianProductRequest(ridge=problem.ridge, direction=z.newton_step)
                hz, answered = await problem.mean(request, members, everyone=True)
                if answered != members:  # V and R stand for another objective than H Z now does
                    solver, members = await _start(problem, solver.weights, problem.run.without_lost(members, answered))
                else:
                    num_new = await asyncio.to_thread(solver.absorb, z.newton_step, hz.product)
                    if num_new == 0 and complete:
                        stalled = finished = solver.stalls(bound)
                        if not stalled:
                            solver, members = await _restarted(problem, solver, members, bound)
        training["objective"] = _objective(solver.weights, solver.residual, solver.moment)
        state = {**solver.to_arrays(), "members": names_array(members), "finished": np.array([finished])}
        if finished or round_num == rounds:
            run.ends(problem.arrival(training, stalled=stalled))
        await problem.close(round_num, solver.weights, state, training, last=finished)
        if finished:
            break
    return None if solver is None else solver.weights


async def _restarted(
    problem: _Problem, solver: BlockConjugateGradients, members: Members, bound: float
) -> tuple[BlockConjugateGradients, Members]:
    """One more trip, for the residual of the weights of now; the same state where a client falls out of it."""
    request = GradientRequest(ridge=problem.ridge, weights=solver.weights)
    slope, answered = await problem.mean(request, members, everyone=True)
    if answered != members:
        return await _start(problem, solver.weights, problem.run.without_lost(members, answered))
    return await asyncio.to_thread(solver.restarted, slope.gradient + solver.moment, bound), members


async def _start(problem: _Problem, weights: Array | None, members: Members) -> tuple[BlockConjugateGradients, Members]:
    """Trips 1 and 2: c, and H W0 at the one-shot average or where an earlier set of clients had come to."""
    while True:
        start, own = await problem.start(members)
        members = problem.run.without_lost(members, tuple(own))
        w0 = start.weights if weights is None else weights
        slope, answered = await problem.gradient(w0, members, own)
        if answered == members:
            product = slope.gradient + start.moment
            start_at = BlockConjugateGradients.start
            return await asyncio.to_thread(start_at, w0, product, start.moment, problem.eps), members
        members = problem.run.without_lost(members, answered)


async def _paper(problem: _Problem) -> Array | None:
    run = problem.run
    first = problem.first_weights()
    solver = None if first is None else PaperNewton(first, _NO_MOMENT, eps=problem.eps)
    members, last_good = problem.clients, None
    if run.resumed:
        solver, recorded = PaperNewton.from_arrays(run.resumed), run.resumed.names("members")
        last_good = run.resumed["last_good"]
        if run.resumed.flag("finished"):
            return solver.weights
        members = problem.still_here(recorded)
        if members != recorded:
            solver = PaperNewton(solver.weights, _NO_MOMENT, eps=problem.eps)
    async for round_num in run.rounds(problem.plan.rounds):
        solver, gradient, members = await _gradient(problem, solver, members)
        step, answered = await problem.mean(NewtonStepRequest(ridge=problem.ridge, gradient=gradient), members)
        objective = _objective(solver.weights, gradient, solver.moment)
        before = solver.weights
        try:
            solver.absorb(gradient, step.newton_step)
        except DivergedError as err:
            good = before if last_good is None else last_good
            raise DivergedRunError(str(err), good, measure=partial(problem.measure, good)) from err
        last_good = before
        training = {"objective": objective}  # like the bound, of the weights before the step
        if answered == members:
            training["relative_distance_bound"] = solver.relative_bound
        finished = answered == members and solver.relative_bound <= problem.plan.stop_at
        state = {
            **solver.to_arrays(),
            "last_good": last_good,
            "members": names_array(members),
            "finished": np.array([finished]),
        }
        if finished or round_num == problem.plan.rounds:
            run.ends(problem.arrival(training))
        await problem.close(round_num, solver.weights, state, training, last=finished)
        if finished:
            break
    return None if solver is None else solver.weights


async def _gradient(
    problem: _Problem, solver: PaperNewton | None, members: Members
) -> tuple[PaperNewton, Array, Members]:
    """Global gradient at the current weights, or at the one-shot average.

    Where a client falls out, p_j are renormalised over the others, and the certificate starts anew with their moment.
    """
    own: Mapping[str, Array] = {}
    while True:
        if solver is None or solver.moment.size == 0:
            start, own = await problem.start(members)
            members = problem.run.without_lost(members, tuple(own))
            weights = start.weights if solver is None else solver.weights
            solver = PaperNewton(weights, start.moment, eps=problem.eps)
        reply, answered = await problem.gradient(solver.weights, members, own)
        if answered == members:
            return solver, reply.gradient, members
        members = problem.run.without_lost(members, answered)
        solver = PaperNewton(solver.weights, _NO_MOMENT, eps=problem.eps)


@dataclass(frozen=True, slots=True)
class _Problem:
    """The job's parts that both iterations need."""

    setup: Setup
    plan: NewtonPlan
    cohort: Cohort
    run: Run

    def first_weights(self) -> Array | None:
        """Those of another job that this one begins with; None: the one-shot average is better than nothing."""
        shape = (self.setup.num_features, self.setup.num_outputs)
        return self.run.first_weights(shape) if self.run.has_first else None

    @property
    def ridge(self) -> float:
        return self.plan.ridge

    @property
    def eps(self) -> float:
        return self.cohort.float_epsilon

    @property
    def clients(self) -> Members:
        return self.cohort.clients

    async def start(self, members: Members) -> tuple[NewtonStart, dict[str, Array]]:
        """Mean of the first trip over those of the members who answered, and the own solution of each."""
        request = NewtonStartRequest(
            ridge=self.ridge, num_features=self.setup.num_features, num_outputs=self.setup.num_outputs
        )
        if self.setup.secure:  # nobody knows the clients' own
            return await self._summed(request), dict.fromkeys(members, _NO_MOMENT)
        replies = await self.cohort.ask(request, clients=members, everyone=True)
        return await self._weighted(replies), {client: reply.weights for client, reply in replies.items()}

    async def gradient(self, weights: Array, members: Members, own: Mapping[str, Array]) -> tuple[Gradient, Members]:
        """Mean gradient over those of the members who answered, and who they are.

        Args:
            weights: Where.
            members: Who is asked.
            own: Solutions of their own, where these are known: a gradient has to fit the client's.
        """
        request = GradientRequest(ridge=self.ridge, weights=weights)
        if self.setup.secure:
            return await self._summed(request), members
        check = gradient_check(self.setup, self.ridge, weights, own)
        replies = await self.cohort.ask(request, clients=members, everyone=True, refusing=check)
        return await self._weighted(replies), tuple(replies)

    async def mean(self, request: Request[R], members: Members, *, everyone: bool = False) -> tuple[R, Members]:
        """Mean over those of the members who answered, and who they are; a secure sum is of all of them."""
        if self.setup.secure:
            return await self._summed(request), members
        replies = await self.cohort.ask(request, clients=members, everyone=everyone)
        return await self._weighted(replies), tuple(replies)

    async def _summed(self, request: Any) -> Any:
        """The mean over all clients, from a secure sum.

        The sum of a later trip over fewer clients would tell of those that are missing, so all are waited for.
        """
        bound, round_num = largest_of_newton(self.setup, request), self.run.round_num + 1
        found = await mean_of_everyone(self.setup, self.cohort, self.run, round_num, request, bound)
        return request.reply(num_rows=sum(self.setup.agreed.num_rows.values()), **found)

    async def _weighted(self, replies: Mapping[str, R]) -> R:
        weights = self.plan.client_weights or self.setup.agreed.num_rows
        return await asyncio.to_thread(self.cohort.weighted, replies, weights)

    def still_here(self, recorded: Members) -> Members:
        """Those of a resumed run's members who passed preparation again."""
        return self.run.without_lost(recorded, tuple(client for client in recorded if client in self.clients))

    async def close(
        self, round_num: int, weights: Array, state: Mapping[str, Array], training: Scores, *, last: bool
    ) -> None:
        """Measure the model where it is due, and record the round."""
        metrics = RoundMetrics(training=training)
        if last or self.run.evaluates(round_num, self.plan.rounds):
            metrics = await self.measure(weights, training)
        await self.run.record(round_num, state, metrics)

    async def measure(self, weights: Array, training: Scores | None = None) -> RoundMetrics:
        """Metrics of a model at the clients."""
        return await evaluate(self.setup, self.cohort, self.run, weights, training)

    def arrival(self, training: Scores, *, stalled: bool = False) -> Arrival:
        """How far the last certificate says that the model is, and why it stopped.

        Args:
            training: With the certificate, where there is one.
            stalled: Whether rounding gives no further direction.
        """
        bound, asked = training.get("relative_distance_bound"), self.plan.stop_at
        if bound is None:
            return Arrival(
                f"all {self.plan.rounds} rounds are used up, and not all clients answered in the last one, so nobody "
                "can say how far the pooled solution is; raise method.rounds",
                False,
            )
        rounding = "" if self.eps < 1e-12 else ", up to the rounding of float32 messages"
        told = f"the relative distance to the pooled solution is at most {bound:.2g}{rounding}"
        if bound <= asked:
            return Arrival(told, True, bound, DISTANCE)
        if stalled:
            remedy = "" if self.eps < 1e-12 else ', or set precision = "float64"'
            why = f"no direction is left that rounding does not hide, though {asked:g} is asked for"
            return Arrival(f"{why}; {told}; give method.ridge a larger value{remedy}", False, bound, DISTANCE)
        used = f"all {self.plan.rounds} rounds are used up, and {asked:g} is asked for"
        more = "give method.rounds or method.ridge a larger value"
        return Arrival(f"{used}; before the last step {told}; {more}", False, bound, DISTANCE)


def gradient_check(
    setup: Setup, ridge: float, at: Array, own: Mapping[str, Array]
) -> Callable[[str, Gradient], Iterator[str]]:
    """(client, its gradient) -> why it cannot be, where the client's own solution is known.

    Args:
        setup: Of the job; random features bound the Hessian.
        ridge: Of the problem.
        at: Weights W.
        own: By client, W_j.
    """
    most = MOST_SQUARE + ridge if setup.agreed.spec.kernel in RANDOM_KERNELS else math.inf

    def check(client: str, reply: Gradient) -> Iterator[str]:
        if client in own:
            yield from not_a_gradient(at, own[client], reply.gradient, ridge, most)

    return check


def _objective(weights: Array, residual: Array, moment: Array) -> float:
    """Pooled objective at W, less the constant |Y|²/(2n), with R = H W - c: ½ tr W'H W - tr W'c."""
    return 0.5 * float(np.vdot(weights, residual - moment))
