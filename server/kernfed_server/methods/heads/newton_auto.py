"""FedNewton on a head by default: local training while it pays, then Newton steps that cannot raise the pooled loss.

The ridge is chosen on the way. The first Newton steps leave rows apart; once these gain no more by a step, the ridge
goes to a tenth, or up where they show that W is too large, for as long as they are predicted better. Then all rows are
trained on with the best of these ridges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import JobError
from kernfed.methods.heads.lbfgs import History
from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.messages import HeadGradient, HeadGradientRequest
from kernfed.methods.heads.ridge_path import MAX_RIDGE, RIDGE_GAIN, following
from kernfed.methods.heads.safe_newton import Direction, Point, SafeNewton, Scaling
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.state import names_array
from kernfed_server.methods.heads.newton_steps import LBFGS, HeadTrainer
from kernfed_server.methods.heads.warm_up import MIN_GAIN, local_round

MAX_PROBES = 25
"""Step sizes tried in a round: the shortest is at most half as long each time."""
FIRST_STEP = 0.5
"""Tried first after local training: means of inverse Hessians are longer than inverses of their mean."""
STEP_GAIN = 0.01
"""Part of the loss on rows kept apart that a Newton step must take off to be followed by another one."""
TOO_WEAK = 10.0
"""A ridge is too weak, whatever W shows of it yet, where so many times as much is missing."""
LEFT_FOR_ALL_ROWS = 0.25
"""Share of the rounds that stay for training on all rows."""


async def train(trainer: HeadTrainer) -> Array:
    """Local rounds of one trip; then rounds of two or more, a Newton step on the preconditioned gradient and probes."""
    return await _Training(trainer).train()


@dataclass(frozen=True, slots=True)
class _Measured:
    """The pooled objective at some weights, over those who answered."""

    point: Point
    worth: float
    """Loss on rows kept apart; without any, that of the objective."""
    scaling: Scaling | None
    """Change of the losses as W is scaled; None without rows kept apart."""
    mean_curvature: float


@dataclass(frozen=True, slots=True)
class _Best:
    """The weights that are worth most, as long as there are rows kept apart."""

    weights: Array
    worth: float


@dataclass(frozen=True, slots=True)
class RidgePath:
    """The ridges tried so far, by what rows kept apart say of the weights at which steps with each came to rest."""

    last: float = math.inf
    """Loss on rows kept apart after the last step."""
    level: float = math.inf
    """The least such loss at which a ridge came to rest."""
    ridge: float = 0.0
    """That ridge."""
    weights: Array | None = None
    """W there."""
    up: bool | None = None
    """Whether ridges grow; None before the first came to rest."""

    def to_arrays(self, shape: tuple[int, int]) -> dict[str, Array]:
        """For a checkpoint, from which `from_arrays` goes on."""
        direction = -1.0 if self.up is None else float(self.up)
        return {
            "ridge_path": np.array([self.last, self.level, self.ridge, direction]),
            "ridge_weights": np.zeros((0, *shape)) if self.weights is None else self.weights[None],
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> RidgePath | None:
        """Rebuild a path; None where the run began under the rule that only raises the ridge."""
        if "ridge_path" not in arrays:
            return None
        last, level, ridge, direction = (float(v) for v in arrays["ridge_path"])
        weights, up = arrays["ridge_weights"], None if direction < 0 else direction > 0
        return cls(last, level, ridge, weights[0] if len(weights) else None, up)


class _Training:
    """A run's state: `train` goes on from a checkpoint."""

    def __init__(self, trainer: HeadTrainer) -> None:
        self.trainer, self.problem, self.settings = trainer, trainer.problem, trainer.settings
        self.newest = self.problem.run.first_weights(self.problem.shape)
        self.warming = self.settings.warm_start
        self.members = self.problem.cohort.clients
        self.state: SafeNewton | None = None
        self.best: _Best | None = None
        self.first_norm = 0.0
        self.judging = False
        self.finished = False
        self.path = RidgePath() if self.settings.raise_ridge is True and trainer.validates else None
        resumed = self.problem.run.resumed
        if resumed:
            if "phase" not in resumed:
                raise JobError("the checkpoint is of an earlier version of kernfed; submit the job again")
            self.newest = resumed["weights"]
            worth, self.first_norm, ridge = (float(v) for v in resumed["progress"])
            self.finished, self.warming, self.judging = (bool(v) for v in resumed["phase"])
            if "best_weights" in resumed:
                self.best = _Best(resumed["best_weights"], worth)
            self.problem.ridge = ridge
            self.path = RidgePath.from_arrays(resumed) if self.path else None
            recorded = resumed.names("members")
            self.members = recorded
            if not self.finished:
                there = tuple(c for c in recorded if c in self.problem.cohort.clients)
                self.members = self.problem.run.without_lost(recorded, there)
            if "scalars" in resumed and self.members == recorded:
                self.state = SafeNewton.from_arrays(resumed, free_bias=self.problem.free_bias)

    async def train(self) -> Array:
        if not self.finished:
            async for round_num in self.problem.run.rounds(self.settings.rounds):
                if self.warming:
                    await self._local(round_num)
                else:
                    await self._newton(round_num)
                if self.finished:
                    break
        return self.newest

    def _tell_end(self) -> None:
        """Say whether the job arrived at the pooled minimum, and how far it is."""
        problem, rounds = self.problem, self.settings.rounds
        if self.state is None or self.judging:
            kind = "local training" if self.state is None else "the search for a ridge"
            problem.ends(Arrival(f"all {rounds} rounds went into {kind}; raise method.rounds", False))
            return
        left, asked = float(np.linalg.norm(self.state.point.gradient)) / (self.first_norm or 1.0), self.settings.stop_at
        measure = "norm of the pooled gradient, of that of the first Newton step"
        told = f"the pooled gradient is {left:.3g} of the first one"
        if left <= asked:
            problem.ends(Arrival(told, True, left, measure))
        elif self.finished:
            problem.ends(Arrival(f"the pooled loss falls no further; {told}", True, left, measure))
        else:
            used = f"all {rounds} rounds are used up, and {asked:g} is asked for"
            problem.ends(Arrival(f"{used}; {told}; raise method.rounds", False, left, measure))

    async def _local(self, round_num: int) -> None:
        """A round of local training, and whether another one follows."""
        sent = self.newest
        done = await local_round(self.trainer, sent, self.members, round_num)
        self.newest, self.members = done.weights, done.members
        worth = done.validation_loss if self.trainer.validates else done.loss
        best = self.best
        self.warming = best is None or worth < (1.0 - MIN_GAIN) * best.worth
        if best is None or worth < best.worth:
            self.best = _Best(sent, worth)
        training = {"loss": done.loss}
        if self.trainer.validates:
            training["validation_loss"] = done.validation_loss
        await self._close(round_num, training)

    async def _newton(self, round_num: int) -> None:
        """A round that moves to a lower pooled loss, or ends the job."""
        before = self.state or await self._start()
        state, at, step_size = await self._advance(before)
        small = float(np.linalg.norm(state.point.gradient)) <= self.settings.stop_at * self.first_norm
        training = {"loss": state.point.value, "step_size": step_size, "damping": state.damping}
        self.finished = small or state is before
        if self.judging:
            moved = state is not before
            if moved:
                training["validation_loss"] = at.worth
            judged = self._chosen(state, at, moved, round_num) if self.path else self._judged(state, at)
            state, self.finished = await judged, False
        self.state, self.newest = state, state.point.weights
        await self._close(round_num, training)

    async def _start(self) -> SafeNewton:
        """The first gradient: at the newest weights, or at the best where those are worth more."""
        self.judging = False
        measured = await self._measure(self.newest)
        if self.best is not None and measured.worth > self.best.worth:
            measured = await self._measure(self.best.weights)
        self.best = _Best(measured.point.weights, measured.worth)
        damping = self.settings.damping
        state = SafeNewton(
            measured.point,
            History(self.settings.history),
            measured.mean_curvature if damping == "auto" else float(damping),
            FIRST_STEP if self.settings.warm_start else 1.0,
        )
        self.trainer.record(damping=state.damping)
        under_fitted = measured.scaling is not None and measured.scaling.under_fitted
        self.judging = under_fitted and self._wanted_ridge(measured) > measured.mean_curvature
        if self.path:
            self.judging, self.path = True, RidgePath(last=measured.worth)
        if self.judging:
            state = state.restarted((await self._measure(measured.point.weights)).point)
        else:
            state = self._settled(state, measured)
        self.first_norm = self.first_norm or float(np.linalg.norm(state.point.gradient))
        return state

    async def _chosen(self, state: SafeNewton, at: _Measured, moved: bool, round_num: int) -> SafeNewton:
        """Go on with this ridge or the next one without the rows kept apart, or with all rows and the best ridge."""
        path, problem = self.path, self.problem
        assert path is not None  # noqa: S101  # the caller asks
        enough = self.settings.rounds - round_num <= LEFT_FOR_ALL_ROWS * self.settings.rounds
        if moved and at.worth < (1.0 - STEP_GAIN) * path.last and not enough:
            self.path = replace(path, last=at.worth)
            return state
        worth = at.worth if moved else path.last
        missing = at.scaling.ridge if at.scaling is not None else 0.0
        if path.up is None:
            path = replace(path, up=missing > problem.ridge)
        weak = bool(path.up) and missing >= TOO_WEAK * problem.ridge and not enough
        better = weak or worth < (1.0 - RIDGE_GAIN) * path.level
        if better:
            level = math.inf if weak else worth
            path = replace(path, level=level, ridge=problem.ridge, weights=state.point.weights)
        tried = following(problem.ridge, up=bool(path.up), missing=missing, curvature=at.mean_curvature)
        self.path = replace(path, last=worth)
        if better and not enough and tried is not None:
            point = state.point.with_other_ridge(tried - problem.ridge)
            problem.ridge = tried
            return state.restarted(point)
        self.judging = False
        assert path.weights is not None  # noqa: S101  # the first ridge is better than none
        problem.ridge = path.ridge
        if path.ridge != ridge_of(self.settings):
            problem.run.note(
                f"ridge {path.ridge:.3g} in place of {ridge_of(self.settings):.3g}: rows kept apart are predicted best "
                "with it; from here on they are trained on too"
            )
        problem.finding = replace(problem.finding, ridge=path.ridge)
        return state.restarted((await self._measure(path.weights)).point)

    async def _judged(self, state: SafeNewton, at: _Measured) -> SafeNewton:
        """Go on without the rows kept apart, or where they gain no more, with them and with the ridge to be."""
        best = self.best
        assert best is not None  # noqa: S101  # `_start` made one
        gains = at.worth < (1.0 - MIN_GAIN) * best.worth
        if at.worth < best.worth:
            self.best = best = _Best(state.point.weights, at.worth)
        if gains and at.scaling is not None and at.scaling.under_fitted:
            return state
        self.judging = False
        return self._settled(state, await self._measure(best.weights))

    def _settled(self, state: SafeNewton, measured: _Measured) -> SafeNewton:
        """The state at weights measured on all rows, with the ridge that those kept apart call for."""
        point, problem = measured.point, self.problem
        ridge = self._wanted_ridge(measured)
        if ridge > problem.ridge:
            problem.run.note(
                f"ridge {ridge:.3g} in place of {problem.ridge:.3g}: rows kept apart call for it; from here on they "
                "are trained on too"
            )
            point = point.with_other_ridge(ridge - problem.ridge)
            problem.ridge, problem.finding = ridge, replace(problem.finding, ridge=ridge)
        return state.restarted(point)

    def _wanted_ridge(self, measured: _Measured) -> float:
        """The ridge that rows kept apart call for; 0 without any, and where the job wants none of it."""
        if measured.scaling is None or not self.settings.raise_ridge:
            return 0.0
        return min(FACTS[self.problem.loss].ridge_per_gap * measured.scaling.ridge, MAX_RIDGE)

    async def _advance(self, state: SafeNewton) -> tuple[SafeNewton, _Measured, float]:
        """One step, what it led to, and its size; the same state where none lowers the loss by more than rounding."""
        nowhere = _Measured(state.point, math.inf, None, 0.0)
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
        step, _ = await trainer.newton_step(state.point.weights, q, state.damping, members)
        return step

    async def _measure(self, weights: Array) -> _Measured:
        """F and its gradient, and what rows kept apart say, over the members, or those of them who answer."""
        problem = self.problem
        request = HeadGradientRequest(ridge=problem.ridge, leave_out=self.judging, weights=weights)
        replies: dict[str, HeadGradient] = {}
        for group in problem.shifts(self.members, self.settings.client_fraction):
            replies |= await problem.ask(request, group, everyone=True)
        answered = tuple(sorted(replies))
        if answered != self.members:
            self.members = problem.run.without_lost(self.members, answered)
        ordered = {client: replies[client] for client in answered}
        mean = problem.weighted_apart(ordered) if self.judging else problem.weighted(ordered)
        point = Point(weights, mean.loss, mean.gradient, problem.free_bias)
        share = problem.share_apart(answered)
        if not share:
            return _Measured(point, mean.loss, None, mean.mean_curvature)
        worth, slope = (
            problem.validation_mean({client: getattr(reply, name) for client, reply in ordered.items()})
            for name in ("validation_loss", "validation_slope")
        )
        scaling = Scaling.of(point, problem.ridge, slope, 0.0 if self.judging else share)
        return _Measured(point, worth, scaling, mean.mean_curvature)

    async def _close(self, round_num: int, training: dict[str, float]) -> None:
        """Record the round: all of this state, and the model so far."""
        if self.finished or round_num == self.settings.rounds:
            self._tell_end()
        best = self.best
        checkpoint = {
            **({"weights": self.newest} if self.state is None else self.state.to_arrays()),
            "progress": np.array([best.worth if best else 0.0, self.first_norm, self.problem.ridge]),
            "phase": np.array([self.finished, self.warming, self.judging], dtype=np.uint8),
            "members": names_array(self.members),
            "solver": self.trainer.solver_number,
            **(self.path.to_arrays(self.problem.shape) if self.path else {}),
        }
        if best is not None and (self.state is None or self.judging):
            checkpoint["best_weights"] = best.weights
        await self.problem.close(round_num, self.settings.rounds, checkpoint, self.newest, training, last=self.finished)
