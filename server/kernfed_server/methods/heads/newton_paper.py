"""Algorithm 2 of the FedNewton paper as printed, on a head, watched over for divergence."""

from __future__ import annotations

import asyncio
import math

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import DivergedError
from kernfed.methods.heads.lbfgs import History
from kernfed.methods.heads.messages import HeadGradientRequest, HeadLossesRequest
from kernfed.methods.heads.safe_newton import choose_step_size, line_search_sizes
from kernfed_server.jobs.diverged import DivergedRunError
from kernfed_server.jobs.run import Members
from kernfed_server.jobs.state import State
from kernfed_server.methods.heads.newton_steps import LBFGS, HeadTrainer

_DIVERGED_FACTOR = 5.0
"""A loss of so many times that of zero weights is beyond what a useful model passes through."""
_DIVERGED_ROUNDS = 5
"""Rounds in a row above the loss of zero weights that make a run a diverged one."""


async def train(trainer: HeadTrainer) -> Array:
    """Algorithm 2: W ← W - η Σ p_j (H_j + damping I)⁻¹ g, on the clients drawn for the round.

    With `gradient = "own"` it is (H_j + damping I)⁻¹ g_j, equation (7) as printed.
    """
    problem, settings, run = trainer.problem, trainer.settings, trainer.problem.run
    weights, history = run.first_weights(problem.shape), History(settings.history)
    good, lowest, damping, above, at_zero = weights, math.inf, -1.0, 0, 0.0
    if run.resumed:
        weights, good = run.resumed["weights"], run.resumed["last_good"]
        lowest, damping, count, at_zero = (float(v) for v in run.resumed["progress"])
        above, history = int(count), History.from_arrays(settings.history, run.resumed)
    async for round_num in run.rounds(settings.rounds):
        asked = problem.sampled(settings.client_fraction, round_num)
        told = await problem.ask(HeadGradientRequest(ridge=problem.ridge, leave_out=False, weights=weights), asked)
        mean, members = await asyncio.to_thread(problem.weighted, told), tuple(told)
        if damping < 0:
            damping = mean.mean_curvature if settings.damping == "auto" else float(settings.damping)
            at_zero = mean.loss
            trainer.record(damping=damping)
        if mean.loss < lowest:
            lowest, good = mean.loss, weights
        above = above + 1 if mean.loss > at_zero and round_num > 1 else 0
        _check_divergence(trainer, mean.loss, at_zero, above, round_num, good, damping)
        if trainer.solver == LBFGS:
            q, coefficients = history.first_half(mean.gradient)
            step = history.second_half(trainer.scale(history, damping, mean.mean_curvature) * q, coefficients)
        elif settings.gradient == "own":
            gradients = {client: reply.gradient for client, reply in told.items()}
            step = await trainer.own_newton_steps(weights, gradients, damping)
        else:
            step, _ = await trainer.newton_step(weights, mean.gradient, damping, members)
        step_size = settings.step_size
        if settings.line_search:
            step_size = await _line_search(trainer, weights, step, mean.loss, mean.gradient, members)
        moved = weights - step_size * step
        whole = settings.client_fraction == 1
        await problem.moved(round_num, settings.rounds, weights, moved, whole=whole)
        if trainer.solver == LBFGS:  # both gradients of a pair must be of the same clients
            after, again = await problem.mean(
                HeadGradientRequest(ridge=problem.ridge, leave_out=False, weights=moved), members
            )
            if again == members:
                history = history.add(moved - weights, after.gradient - mean.gradient)
        weights = moved
        training = {"loss": mean.loss, "step_size": step_size, "damping": damping}
        state = {
            "weights": weights,
            "last_good": good,
            "progress": np.array([lowest, damping, float(above), at_zero]),
            "solver": trainer.solver_number,
            **history.to_arrays(problem.shape),
        }
        await problem.close(round_num, settings.rounds, state, weights, training)
    return weights


async def _line_search(
    trainer: HeadTrainer, weights: Array, step: Array, value: float, gradient: Array, members: Members
) -> float:
    """The best of ten step sizes by the losses of the round's clients; 0 where none lowers them."""
    sizes = line_search_sizes(2.0 * trainer.settings.step_size)
    request = HeadLossesRequest(ridge=trainer.problem.ridge, weights=weights, direction=step, step_sizes=sizes)
    problem = trainer.problem
    found, answered = await problem.mean(request, members)
    if answered != members:  # F at W is to be of those who told it further on
        here = HeadGradientRequest(ridge=problem.ridge, leave_out=False, weights=weights)
        again, still = await problem.mean(here, answered)
        if still != answered:
            return 0.0
        value, gradient = again.loss, again.gradient
    return choose_step_size(value, float(np.vdot(gradient, step)), sizes, found.losses) or 0.0


def _check_divergence(
    trainer: HeadTrainer, loss: float, at_zero: float, above: int, round_num: int, good: Array, damping: float
) -> None:
    if math.isfinite(loss) and loss <= _DIVERGED_FACTOR * max(at_zero, 1e-12) and above < _DIVERGED_ROUNDS:
        return
    settings = trainer.settings
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
    problem = trainer.problem
    raise DivergedRunError(
        str(error), problem.whole(good), measure=lambda: problem.measure_left(State({"weights": good}))
    ) from error
