"""FedNewton on a head by default: local training while it pays, then Newton steps that cannot raise the pooled loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernfed.head_newton import Direction, Point, SafeNewton, matching_ridge
from kernfed.messages.base import Array
from kernfed.messages.heads import HeadGradient, HeadGradientRequest
from kernfed.solvers.lbfgs import History
from kernfed_server.heads import Members, decode_names, encode_names
from kernfed_server.workflows.newton_head_steps import LBFGS, HeadTrainer
from kernfed_server.workflows.newton_warm_up import MIN_GAIN, local_round

MAX_PROBES = 25
"""Step sizes tried in a round: the shortest is at most half as long each time."""
OVER_FITTED = 1.02
"""The loss on rows kept apart over its least, from which on rounds over-fit."""
MIN_RAISE = 3.0
"""A ridge that is not larger by so much is not worth starting again."""


async def train(trainer: HeadTrainer) -> Array | None:
    """Local rounds of one trip; then rounds of two or more, a Newton step on the preconditioned gradient and probes."""
    return await _Training(trainer).train()


@dataclass(frozen=True, slots=True)
class _Measured:
    """The pooled objective at some weights, over those who answered."""

    point: Point
    validation_loss: float
    mean_curvature: float
    members: Members


@dataclass(frozen=True, slots=True)
class _Best:
    """The weights with the least loss on rows kept apart; without such rows, the latest."""

    weights: Array
    gradient: Array
    """∇F there; 0 where it was not asked for."""
    loss: float
    round_num: int


class _Training:
    """A run's state: `train` goes on from a checkpoint."""

    def __init__(self, trainer: HeadTrainer) -> None:
        self.trainer, self.problem, self.settings = trainer, trainer.problem, trainer.settings
        self.newest = np.zeros(self.problem.shape)
        self.warming = self.settings.warm_start
        self.members = self.problem.cohort.clients
        self.state: SafeNewton | None = None
        self.best: _Best | None = None
        self.first_norm = 0.0
        self.finished = False
        resumed = self.problem.run.resumed
        if resumed:
            self.newest = resumed["weights"]
            best_loss, best_round, self.first_norm, ridge, finished, warming = (float(v) for v in resumed["progress"])
            self.finished, self.warming = bool(finished), bool(warming)
            self.best = _Best(resumed["best_weights"], resumed["best_gradient"], best_loss, int(best_round))
            self.problem.ridge = ridge
            recorded = decode_names(resumed["members"])
            self.members = recorded
            if not self.finished:
                there = tuple(c for c in recorded if c in self.problem.cohort.clients)
                self.members = self.problem.shrink(recorded, there)
            if "scalars" in resumed and self.members == recorded:
                self.state = SafeNewton.from_arrays(resumed)

    async def train(self) -> Array | None:
        if self.finished and self.best is not None:
            return self.best.weights
        async for round_num in self.problem.run.rounds(self.settings.rounds):
            if self.warming:
                await self._local(round_num)
            else:
                await self._newton(round_num)
            if self.finished:
                break
        if self.state is None or self.best is None:
            return self.newest
        return self.best.weights

    async def _local(self, round_num: int) -> None:
        """A round of local training, and whether another one follows."""
        sent = self.newest
        done = await local_round(self.trainer, sent, self.members, round_num)
        self.newest, self.members = done.weights, done.members
        worth = self._worth(done.validation_loss, done.loss)
        best = self.best
        self.warming = best is None or worth < (1.0 - MIN_GAIN) * best.loss
        if best is None or worth < best.loss:
            self.best = _Best(sent, np.zeros_like(sent), worth, round_num - 1)
        training = {"loss": done.loss}
        if self.trainer.validates:
            training["validation_loss"] = done.validation_loss
        await self._close(round_num, self.newest, training)

    async def _newton(self, round_num: int) -> None:
        """A round that moves to a lower pooled loss, or ends the job."""
        if self.state is None:
            await self._start(round_num)
        assert self.state is not None  # noqa: S101  # `_start` made one
        assert self.best is not None  # noqa: S101
        before, trainer = self.state, self.trainer
        state, measured, step_size = await self._advance(before)
        small = float(np.linalg.norm(state.point.gradient)) <= self.settings.tolerance * self.first_norm
        worth = self._worth(measured.validation_loss, state.point.value)
        if not trainer.validates or worth < self.best.loss:
            self.best = _Best(state.point.weights, state.point.gradient, worth, round_num)
        over = trainer.validates and round_num - self.best.round_num >= self.settings.patience
        self.state, self.newest = state, state.point.weights
        self.finished = small or state is before or over
        if self.finished:
            self._note_end(round_num, self.best, small=small, over=over)
        training = {"loss": state.point.value, "step_size": step_size, "damping": state.damping}
        if trainer.validates:
            training["validation_loss"] = worth
            if self.settings.raise_ridge and not self.finished and worth > OVER_FITTED * self.best.loss:
                await self._raise_ridge()
        await self._close(round_num, self.best.weights, training)

    async def _start(self, round_num: int) -> None:
        """The first gradient: at the newest weights, or at the best where those are known to be worth more."""
        measured = await self._measure(self.newest)
        worth = self._worth(measured.validation_loss, measured.point.value)
        if self.best is not None and worth > self.best.loss:
            measured = await self._measure(self.best.weights)
            worth = self._worth(measured.validation_loss, measured.point.value)
        damping, point = self.settings.damping, measured.point
        self.state = SafeNewton(
            point, History(self.settings.history), measured.mean_curvature if damping == "auto" else float(damping)
        )
        self.best = _Best(point.weights, point.gradient, worth, round_num - 1)
        self.first_norm = self.first_norm or float(np.linalg.norm(point.gradient))
        self.trainer.record(damping=self.state.damping)

    async def _raise_ridge(self) -> None:
        """Go back to the best weights, with the ridge that fits them; nothing where that is hardly larger."""
        assert self.best is not None  # noqa: S101  # as in `_newton`, which calls
        assert self.state is not None  # noqa: S101
        best, problem = self.best, self.problem
        ridge = matching_ridge(best.weights, best.gradient, problem.ridge)
        if ridge <= MIN_RAISE * problem.ridge:
            return
        problem.run.note(
            f"ridge {ridge:.3g} in place of {problem.ridge:.3g}, from the weights of round {best.round_num}: the loss "
            "on rows kept apart rises while the pooled one falls"
        )
        problem.ridge = problem.facts["ridge"] = ridge
        measured = await self._measure(best.weights)
        self.state = self.state.restarted(measured.point)
        self.newest = measured.point.weights
        self.best = _Best(best.weights, measured.point.gradient, best.loss, best.round_num)
        problem.publish()

    async def _advance(self, state: SafeNewton) -> tuple[SafeNewton, _Measured, float]:
        """One step; the same state again where none lowers the loss by more than rounding."""
        nowhere = _Measured(state.point, math.inf, 0.0, self.members)
        q, coefficients = state.preconditioned()
        if not q.any():
            return state, nowhere, 0.0
        direction = state.direction(await self._newton_step(state, q), coefficients)
        step_size = state.step_size
        for _ in range(MAX_PROBES):
            members = self.members
            at = await self._measure(state.point.weights - step_size * direction.matrix)
            if self.members != members:  # F at W was of other clients: measure it again, of those who are left
                state = state.restarted((await self._measure(state.point.weights)).point)
                slope = float(np.vdot(state.point.gradient, direction.matrix))
                direction = Direction(direction.matrix, max(slope, 0.0))
            if state.accepts(direction, step_size, at.point.value):
                if direction.slope > 0:
                    return state.moved(direction, step_size, at.point), at, step_size
                return state.restarted(at.point), at, step_size
            step_size = state.shortened(direction, step_size, at.point.value)
        self.problem.run.note("no step lowers the pooled loss by more than rounding: it is as low as it gets")
        return state, nowhere, 0.0

    async def _newton_step(self, state: SafeNewton, q: Array) -> Array:
        trainer, members = self.trainer, self.members
        if trainer.solver == LBFGS:
            return trainer.scale(state.history, state.damping) * q
        if self.settings.client_fraction < 1:  # any part of the clients gives a descent direction
            asked = self.problem.sampled(self.settings.client_fraction, self.problem.run.round_num + 1)
            members = tuple(c for c in asked if c in self.members) or self.members
        request = trainer.step_request(state.point.weights, q, state.damping)
        reply, _ = await self.problem.mean(request, members)
        return reply.newton_step

    async def _measure(self, weights: Array) -> _Measured:
        """F, its gradient and the loss on rows kept apart, over the members, or those of them who answer."""
        problem = self.problem
        request = HeadGradientRequest(problem.ridge, weights)
        replies: dict[str, HeadGradient] = {}
        for group in problem.shifts(self.members, self.settings.client_fraction):
            replies |= await problem.ask(request, group, everyone=True)
        answered = tuple(sorted(replies))
        if answered != self.members:
            self.members = problem.shrink(self.members, answered)
        mean = problem.weighted({client: replies[client] for client in answered})
        validation = problem.validation_mean({client: replies[client].validation_loss for client in answered})
        return _Measured(Point(weights, mean.loss, mean.gradient), validation, mean.mean_curvature, answered)

    def _worth(self, validation_loss: float, loss: float) -> float:
        return validation_loss if self.trainer.validates else loss

    async def _close(self, round_num: int, weights: Array, training: dict[str, float]) -> None:
        """Record the round: all of this state, and the model so far."""
        assert self.best is not None  # noqa: S101  # every round leaves one
        best = self.best
        numbers = (best.loss, best.round_num, self.first_norm, self.problem.ridge, self.finished, self.warming)
        checkpoint = {
            **({"weights": self.newest} if self.state is None else self.state.to_arrays()),
            "best_weights": best.weights,
            "best_gradient": best.gradient,
            "progress": np.array([float(number) for number in numbers]),
            "members": encode_names(self.members),
            "solver": self.trainer.solver_number,
        }
        await self.problem.close(round_num, self.settings.rounds, checkpoint, weights, training, last=self.finished)

    def _note_end(self, round_num: int, best: _Best, *, small: bool, over: bool) -> None:
        if small:
            why = "the gradient is below the tolerance"
        elif over:
            why = f"no better loss on the rows kept apart for {self.settings.patience} rounds"
        else:
            why = "the loss falls no further"
        chosen = f"; the model is that of round {best.round_num}" if best.round_num != round_num else ""
        self.problem.run.note(f"finished: {why}{chosen}")
