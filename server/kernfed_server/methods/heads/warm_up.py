"""Rounds of local training before FedNewton's own on a head, for as long as they pay.

Averaged local epochs bring most of the accuracy within a few uploads, where a Newton step takes two and lands on an
optimum that over-fits few rows; but under label skew they stop short of it. So they come first, and end at the round
after which the loss on rows kept apart no longer falls by much. A reply tells what its request's weights were worth,
so that this costs no trip; the coordinator knows of each mean one round later.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernfed.arrays import Array
from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.messages import HeadWarmUp, HeadWarmUpRequest
from kernfed_server.jobs.run import Members
from kernfed_server.methods.heads.newton_steps import HeadTrainer

MIN_GAIN = 0.03
"""Part of the loss that a round must take off for another one to follow."""
EPOCHS = 4
BATCH = 64
MOMENTUM = 0.9
MAX_LEARNING_RATE = 0.1


@dataclass(frozen=True, slots=True)
class LocalRound:
    """A mean of clients' weights, and what the weights were worth that they began with."""

    weights: Array
    loss: float
    """F at the weights that the clients began with."""
    validation_loss: float
    members: Members


async def local_round(trainer: HeadTrainer, weights: Array, members: Members, round_num: int) -> LocalRound:
    """Ask all members, in shifts where the job says so, for epochs of gradient steps from W."""
    problem = trainer.problem
    request = HeadWarmUpRequest(
        ridge=problem.ridge,
        learning_rate=min(MAX_LEARNING_RATE, FACTS[problem.loss].warm_up_rate / problem.shape[0], 1.0 / problem.ridge),
        momentum=MOMENTUM,
        num_epochs=EPOCHS,
        batch_size=BATCH,
        seed=problem.round_seed("warm-up", round_num),
        weights=weights,
    )
    replies: dict[str, HeadWarmUp] = {}
    for group in problem.shifts(members, trainer.settings.client_fraction):
        replies |= await problem.ask(request, group, everyone=True)
    answered = tuple(sorted(replies))
    if answered != members:
        problem.run.without_lost(members, answered)
    mean = problem.weighted_apart({client: replies[client] for client in answered})
    validation = problem.validation_mean({client: replies[client].validation_loss for client in answered})
    return LocalRound(mean.weights, mean.loss, validation, answered)
