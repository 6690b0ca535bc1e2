"""FedNewton on a head over frozen features: local Newton steps on the global gradient, by any solver."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernfed.cohort import Cohort
from kernfed.errors import DivergedError
from kernfed.head_newton import Direction, Point, SafeNewton, choose_step_size, line_search_sizes
from kernfed.head_settings import NewtonSettings
from kernfed.messages.base import Array
from kernfed.messages.heads import (
    HeadDescentRequest,
    HeadGradient,
    HeadGradientRequest,
    HeadLoss,
    HeadLossesRequest,
    HeadSolver,
    HeadStepRequest,
)
from kernfed.solvers.choice import choose_solver
from kernfed.solvers.lbfgs import History
from kernfed_server.diverged import DivergedRunError
from kernfed_server.heads import HeadProblem, Members, decode_names, encode_names, open_head
from kernfed_server.preparation import Setup
from kernfed_server.run import Run

MAX_PROBES = 25
"""Step sizes tried in a round: the shortest is at most half as long each time."""
WARM_LEARNING_RATE = 0.1
"""At most; 6 over the number of features where those are many, for their curvature grows with them."""
WARM_MOMENTUM = 0.9
WARM_BATCH = 64
_LBFGS = "lbfgs"
_SOLVERS: tuple[str, ...] = (_LBFGS, *(solver.value for solver in HeadSolver))
_DIVERGED_FACTOR = 5.0
"""A loss of so many times that of zero weights is beyond what a useful model passes through."""
_DIVERGED_ROUNDS = 5
"""Rounds in a row above the loss of zero weights that make a run a diverged one."""
_MAX_LISTED = 12


async def run(setup: Setup, settings: NewtonSettings, cohort: Cohort, run: Run) -> Array | None:
    """Train a head W, shape (D, C), on the pooled loss, without pooling a row.

    What leaves a client: in each round a gradient and its loss (`gradient`, `metric`), and a local Newton step on the
    global gradient (`newton_step`); with a line search, losses at other weights (`metric`); with a warm start, weights
    after one epoch (`model_update`). The coordinator learns these per client, and W.

    Source: FedNewton paper, Algorithm 2; with `step = "auto"` see `kernfed.head_newton`.
    """
    auto = settings.step == "auto"
    fraction = settings.validation_fraction if auto else 0.0
    problem = await open_head(
        setup, loss=settings.loss, ridge=settings.ridge, cohort=cohort, run=run, validation_fraction=fraction
    )
    solver = _choose(problem, settings)
    _warn_few_rows(problem, settings, solver)
    trainer = _Trainer(problem, settings, solver)
    return await (trainer.auto() if auto else trainer.paper())


@dataclass(frozen=True, slots=True)
class _Measured:
    """The pooled objective at some weights, over those who answered."""

    point: Point
    validation_loss: float
    mean_curvature: float
    members: Members


@dataclass(slots=True)
class _Best:
    """The weights with the least loss on rows kept apart."""

    weights: Array
    loss: float
    round_num: int


@dataclass(frozen=True, slots=True)
class _Trainer:
    problem: HeadProblem
    settings: NewtonSettings
    solver: str

    async def auto(self) -> Array | None:
        """Rounds of two trips or more: a Newton step on the preconditioned gradient, then probes until one will do."""
        problem, settings, run = self.problem, self.settings, self.problem.run
        state: SafeNewton | None = None
        best: _Best | None = None
        members, first_norm = problem.cohort.clients, 0.0
        if run.resumed:
            state = SafeNewton.from_arrays(run.resumed)
            loss, at, first_norm, finished = (float(v) for v in run.resumed["progress"])
            best = _Best(run.resumed["best_weights"], loss, int(at))
            if finished:
                return best.weights
            recorded = decode_names(run.resumed["members"])
            members = problem.shrink(recorded, tuple(c for c in recorded if c in problem.cohort.clients))
            if members != recorded:
                state = None
        async for round_num in run.rounds(settings.rounds):
            if state is None:
                start = np.zeros(problem.shape) if best is None else best.weights
                state, measured = await self._start(start, members, warm=best is None)
                members, best = measured.members, None
                first_norm = first_norm or float(np.linalg.norm(state.point.gradient))
                self._record(damping=state.damping)
            before = state
            state, measured_at, step_size, members = await self._advance(state, members)
            small = float(np.linalg.norm(state.point.gradient)) <= settings.tolerance * first_norm
            stuck = state is before
            validation = measured_at.validation_loss if self._validates else state.point.value
            if best is None or not self._validates or validation < best.loss:
                best = _Best(state.point.weights, validation, round_num)
            over = self._validates and round_num - best.round_num >= settings.patience
            finished = small or stuck or over
            if finished:
                self._note_end(round_num, best, small=small, over=over)
            training = {"loss": state.point.value, "step_size": step_size, "damping": state.damping}
            if self._validates:
                training["validation_loss"] = validation
            checkpoint = {
                **state.to_arrays(),
                "best_weights": best.weights,
                "progress": np.array([best.loss, best.round_num, first_norm, float(finished)]),
                "members": encode_names(members),
                "solver": self._solver_number,
            }
            await problem.close(round_num, settings.rounds, checkpoint, best.weights, training, last=finished)
            if finished:
                break
        return None if best is None else best.weights

    async def _start(self, weights: Array, members: Members, *, warm: bool) -> tuple[SafeNewton, _Measured]:
        """The first gradient: at the mean of the clients' weights after one epoch, where that is better than zero."""
        problem, settings = self.problem, self.settings
        if warm and settings.warm_start:
            request = HeadDescentRequest(
                ridge=problem.ridge,
                proximal=0.0,
                learning_rate=min(WARM_LEARNING_RATE, 6.0 / problem.shape[0]),
                momentum=WARM_MOMENTUM,
                num_epochs=1,
                batch_size=WARM_BATCH,
                seed=problem.round_seed("warm-start", 0),
                weights=weights,
            )
            warmed, answered = await problem.mean(request, members, everyone=True)
            measured = await self._measure(warmed.weights, problem.shrink(members, answered))
            if measured.point.value < self._loss_at_zero(measured):
                return self._fresh(measured), measured
            members = measured.members
        measured = await self._measure(weights, members)
        return self._fresh(measured), measured

    def _fresh(self, measured: _Measured) -> SafeNewton:
        damping = self.settings.damping
        return SafeNewton(
            measured.point,
            History(self.settings.history),
            measured.mean_curvature if damping == "auto" else float(damping),
        )

    async def _advance(self, state: SafeNewton, members: Members) -> tuple[SafeNewton, _Measured, float, Members]:
        """One round; the same state again where no step lowers the loss by more than rounding."""
        problem = self.problem
        q, coefficients = state.preconditioned()
        nowhere = _Measured(state.point, math.inf, 0.0, members)
        if not q.any():
            return state, nowhere, 0.0, members
        direction = state.direction(await self._newton_step(state, q, members), coefficients)
        step_size = state.step_size
        for _ in range(MAX_PROBES):
            at = await self._measure(state.point.weights - step_size * direction.matrix, members)
            if at.members != members:  # F at W was of other clients: measure it again, of those who are left
                members = at.members
                state = state.restarted((await self._measure(state.point.weights, members)).point)
                slope = float(np.vdot(state.point.gradient, direction.matrix))
                direction = Direction(direction.matrix, max(slope, 0.0))
            if state.accepts(direction, step_size, at.point.value):
                if direction.slope > 0:
                    return state.moved(direction, step_size, at.point), at, step_size, members
                return state.restarted(at.point), at, step_size, members
            step_size = state.shortened(direction, step_size, at.point.value)
        problem.run.note("no step lowers the pooled loss by more than rounding: it is as low as it gets")
        return state, nowhere, 0.0, members

    async def _newton_step(self, state: SafeNewton, q: Array, members: Members) -> Array:
        if self.solver == _LBFGS:
            return self._scale(state.history, state.damping) * q
        round_members = members
        if self.settings.client_fraction < 1:  # any part of the clients gives a descent direction
            asked = self.problem.sampled(self.settings.client_fraction, self.problem.run.round_num + 1)
            round_members = tuple(c for c in asked if c in members) or members
        request = self._step_request(state.point.weights, q, state.damping)
        reply, _ = await self.problem.mean(request, round_members)
        return reply.newton_step

    async def _measure(self, weights: Array, members: Members) -> _Measured:
        """F, its gradient and the loss on rows kept apart, over the members, or those of them who answer."""
        problem = self.problem
        request = HeadGradientRequest(problem.ridge, weights)
        replies: dict[str, HeadGradient] = {}
        for group in problem.shifts(members, self.settings.client_fraction):
            replies |= await problem.ask(request, group, everyone=True)
        answered = tuple(sorted(replies))
        if answered != members:
            problem.shrink(members, answered)
        mean = problem.weighted({client: replies[client] for client in answered})
        apart = sum(problem.validation_rows[c] for c in answered)
        validation = sum(problem.validation_rows[c] * replies[c].validation_loss for c in answered) / max(apart, 1)
        return _Measured(Point(weights, mean.loss, mean.gradient), validation, mean.mean_curvature, answered)

    async def paper(self) -> Array | None:
        """Algorithm 2 as printed: W ← W - η Σ p_j (H_j + damping I)⁻¹ g, on the clients drawn for the round."""
        problem, settings, run = self.problem, self.settings, self.problem.run
        weights, history = np.zeros(problem.shape), History(settings.history)
        good, lowest, damping, above, at_zero = weights, math.inf, -1.0, 0, 0.0
        if run.resumed:
            weights, good = run.resumed["weights"], run.resumed["last_good"]
            lowest, damping, count, at_zero = (float(v) for v in run.resumed["progress"])
            above, history = int(count), History.from_arrays(settings.history, run.resumed)
        async for round_num in run.rounds(settings.rounds):
            asked = problem.sampled(settings.client_fraction, round_num)
            mean, members = await problem.mean(HeadGradientRequest(problem.ridge, weights), asked)
            if damping < 0:
                damping = mean.mean_curvature if settings.damping == "auto" else float(settings.damping)
                at_zero = mean.loss
                self._record(damping=damping)
            if mean.loss < lowest:
                lowest, good = mean.loss, weights
            above = above + 1 if mean.loss > at_zero and round_num > 1 else 0
            self._check_divergence(mean.loss, at_zero, above, round_num, good, damping)
            if self.solver == _LBFGS:
                q, coefficients = history.first_half(mean.gradient)
                step = history.second_half(self._scale(history, damping, mean.mean_curvature) * q, coefficients)
            else:
                reply, _ = await problem.mean(self._step_request(weights, mean.gradient, damping), members)
                step = reply.newton_step
            step_size = settings.step_size
            if settings.line_search:
                step_size = await self._line_search(weights, step, mean.loss, mean.gradient, members)
            moved = weights - step_size * step
            if self.solver == _LBFGS:  # both gradients of a pair must be of the same clients
                after, again = await problem.mean(HeadGradientRequest(problem.ridge, moved), members)
                if again == members:
                    history = history.add(moved - weights, after.gradient - mean.gradient)
            weights = moved
            training = {"loss": mean.loss, "step_size": step_size, "damping": damping}
            state = {
                "weights": weights,
                "last_good": good,
                "progress": np.array([lowest, damping, float(above), at_zero]),
                "solver": self._solver_number,
                **history.to_arrays(problem.shape),
            }
            await problem.close(round_num, settings.rounds, state, weights, training)
        return weights

    async def _line_search(self, weights: Array, step: Array, value: float, gradient: Array, members: Members) -> float:
        """The best of ten step sizes by the losses of the round's clients; 0 where none lowers them."""
        sizes = line_search_sizes(2.0 * self.settings.step_size)
        request = HeadLossesRequest(self.problem.ridge, weights, step, sizes)
        found, answered = await self.problem.mean(request, members)
        if answered != members:
            return 0.0
        return choose_step_size(value, float(np.vdot(gradient, step)), sizes, found.losses) or 0.0

    def _check_divergence(
        self, loss: float, at_zero: float, above: int, round_num: int, good: Array, damping: float
    ) -> None:
        if math.isfinite(loss) and loss <= _DIVERGED_FACTOR * max(at_zero, 1e-12) and above < _DIVERGED_ROUNDS:
            return
        settings = self.settings
        changes = ['step = "auto", which cannot raise the loss']
        if not settings.line_search:
            changes.append("line_search = true")
        changes += [f"a step_size below {settings.step_size:g}", f"a damping above {damping:.3g}"]
        error = DivergedError(
            f"round {round_num}: the loss of this round's clients is {loss:.3g}, against {at_zero:.3g} at zero weights"
            + (f", for {above} rounds in a row" if above >= _DIVERGED_ROUNDS else "")
            + ": Newton steps of local Hessians overshoot where clients lack rows or classes. Use "
            + ", or ".join(changes)
        )
        raise DivergedRunError(str(error), good) from error

    def _step_request(self, weights: Array, direction: Array, damping: float) -> HeadStepRequest:
        settings = self.settings
        return HeadStepRequest(
            ridge=self.problem.ridge,
            damping=damping,
            solver=HeadSolver(self.solver),
            tolerance=settings.solver_tolerance,
            max_iterations=settings.solver_iterations,
            rank=settings.rank,
            max_bytes=settings.max_solver_bytes,
            weights=weights,
            direction=direction,
        )

    def _scale(self, history: History, damping: float, mean_curvature: float = 0.0) -> float:
        """Initial inverse curvature of L-BFGS: that of the newest pair, at first from the mean curvature."""
        return history.scale or 1.0 / (self.problem.ridge + max(damping, mean_curvature, 1e-12))

    def _loss_at_zero(self, measured: _Measured) -> float:
        """F(0), which needs no trip for cross-entropy."""
        if self.problem.loss is HeadLoss.SOFTMAX:
            return math.log(self.problem.shape[1])
        return math.log(2.0) if self.problem.loss is HeadLoss.LOGISTIC else math.inf

    @property
    def _solver_number(self) -> Array:
        return np.array([_SOLVERS.index(self.solver)])

    @property
    def _validates(self) -> bool:
        return sum(self.problem.validation_rows.values()) > 0

    def _record(self, *, damping: float) -> None:
        facts = self.problem.facts
        facts["damping"] = damping
        if self.settings.damping == "auto":
            self.problem.run.note(f"damping {damping:.4g}: the mean of the diagonal of the clients' Hessians")
        self.problem.publish()

    def _note_end(self, round_num: int, best: _Best, *, small: bool, over: bool) -> None:
        if small:
            why = "the gradient is below the tolerance"
        elif over:
            why = f"no better loss on the rows kept apart for {self.settings.patience} rounds"
        else:
            why = "the loss falls no further"
        chosen = f"; the model is that of round {best.round_num}" if best.round_num != round_num else ""
        self.problem.run.note(f"finished: {why}{chosen}")


def _choose(problem: HeadProblem, settings: NewtonSettings) -> str:
    """The solver, and why, for the record; a resumed run keeps its own."""
    d, c = problem.shape
    rows = max(problem.fit_rows.values())
    if problem.run.resumed is not None:
        solver, reason = _SOLVERS[int(problem.run.resumed["solver"][0])], "as before the restart"
    elif settings.solver == "auto":
        choice = choose_solver(problem.loss, rows, d, c, problem.memory_bytes, settings.max_solver_bytes)
        solver, reason = choice.solver.value, choice.reason
    else:
        solver, reason = settings.solver, "named in the job"
    problem.run.note(f"solver {solver}: {reason}")
    problem.facts |= {
        "method": "newton",
        "loss": problem.loss.value,
        "step": settings.step,
        "solver": solver,
        "reason": reason,
        "features": d,
        "outputs": c,
        "rows": rows,
        "ridge": problem.ridge,
    }
    return solver


def _warn_few_rows(problem: HeadProblem, settings: NewtonSettings, solver: str) -> None:
    """Say before round 1 where local Hessians will not stand for the pooled one, from row counts and damping."""
    if solver == _LBFGS:
        return
    d, _ = problem.shape
    few = [client for client, rows in problem.fit_rows.items() if rows < d]
    undamped = settings.damping != "auto" and float(settings.damping) + problem.ridge < _ENOUGH_DAMPING
    if not few or not (undamped or settings.step == "paper"):
        return
    listed = ", ".join(few[:_MAX_LISTED]) + (", …" if len(few) > _MAX_LISTED else "")
    least = min(problem.fit_rows[client] for client in few)
    remedy = (
        "only more rounds are at stake: the loss decides over each step"
        if settings.step == "auto"
        else 'the averaged step may overshoot; use step = "auto", line_search = true, or damping = "auto"'
    )
    problem.run.note(
        f"{listed}: fewer rows (from {least}) than the {d} features, so most directions have no local curvature but "
        f"damping and ridge ({settings.damping} and {problem.ridge:g}): {remedy}"
    )


_ENOUGH_DAMPING = 1e-2
"""Damping and ridge below which a Hessian of few rows is as good as singular, for features of size 1."""
