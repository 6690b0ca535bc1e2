"""Weights of personal networks, chosen by held-out losses of networks: cross-fitting's, or Q-aggregation's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import JobError, QuorumNotMetError
from kernfed.methods.personalise.networks.judging import NUM_FOLDS, RULES, choose, passed_on, without_a_fold
from kernfed.methods.personalise.training_messages import NetworkScores, ScoreNetworksRequest
from kernfed.models.network_spec import NetworkSpec
from kernfed_server.methods.personalise.choosing import aggregate
from kernfed_server.methods.personalise.network_batch import Apart, Networks
from kernfed_server.methods.personalise.state import Collaboration, Targets, targets_of
from kernfed_server.methods.personalise.weights import Personalisation

_OTHER = ", by Q-aggregation, which held-out losses of networks prefer"


async def judged(job: Personalisation, spec: NetworkSpec, found: Collaboration) -> Collaboration:
    """The weights with which networks are to be trained: those found, or for some clients those of Q-aggregation.

    The latter are passed on among clients that look alike, as the job's rule says. Networks are trained with both, each
    without a half of its client's rows. Each client tells the losses on the halves, and the choice for it counts those
    of the clients that look like it, by the weights that are passed on. Where it cannot be made, the weights stay as
    they are, and the job says so.
    """
    judge = job.settings.judge
    if judge == "ridge" or "judge" in job.settings.idle_keys():
        return found
    rule = RULES[judge]
    rounds = round(rule.share * (job.settings.rounds - 1))
    if rounds < 1:
        return found
    try:
        await aggregate(job, exact=False)
        other = await job.told_weights(needed=True)
        other = replace(other, weights=passed_on(other.weights, rule.powers))
        told = [c for c in found.told if c in other.told]
        both = tuple(_only(x, told) for x in (found, other))
        scores = await _scores(job, spec, both, rounds) if told else {}
    except (QuorumNotMetError, JobError) as err:
        job.say(f"held-out losses of networks could not be had, so their weights are those of ridge models: {err}")
        return found
    scored = [c for c in told if c in scores and scores[c].num_scored > 0]
    if not scored:
        job.say(
            "no client can leave half of its rows out: each half must hold policy.min_rows rows, and as many of each "
            "value that few rows have; so the weights of networks are those of ridge models"
        )
        return found
    chosen = choose(
        other.weights[:, [other.clients.index(c) for c in scored]][[other.clients.index(c) for c in told]],
        np.array([scores[c].losses for c in scored], dtype=np.float64),
        np.array([scores[c].covariance for c in scored], dtype=np.float64),
    )
    taken = {c: other.weights[other.clients.index(c)] for c, j in zip(told, chosen, strict=True) if j == 1}
    job.say(
        f"held-out losses of networks after {rounds} rounds: {len(taken)} of {len(told)} clients take the weights of "
        f"Q-aggregation, the others keep those of cross-fitting"
    )
    weights = {c: taken.get(c, found.weights[found.clients.index(c)]) for c in found.told}
    choices = {c: words for c, words in zip(found.clients, found.choices, strict=True) if c not in taken}
    choices |= {c: rule.words + _OTHER + other.choices[other.clients.index(c)] for c in taken}
    return found.with_told(weights, choices)


async def _scores(
    job: Personalisation, spec: NetworkSpec, candidates: tuple[Collaboration, ...], rounds: int
) -> dict[str, NetworkScores]:
    """Train networks of each candidate without each fold, and ask for their losses on it."""
    threshold, clients = job.settings.min_weight, candidates[0].clients
    made = [targets_of(candidate, threshold) for candidate in candidates]
    names, everyone = made[0].names, made[0].mix[-1:]
    own = np.array([clients.index(c) for c in names])
    mix: list[Floats] = [without_a_fold(targets.mix[:-1], own) for targets in made for _ in range(NUM_FOLDS)]
    fold = np.tile(np.repeat(np.arange(1, NUM_FOLDS + 1), len(names)), len(made))
    apart = Apart(NUM_FOLDS, np.append(np.tile(own, len(mix)), 0), np.append(fold, 0))
    # The last network is that of all rows, from which the scales of the others are told.
    targets = Targets(names, np.concatenate([*mix, everyone]), 0.0)
    networks = Networks.start(job, spec, clients, targets, apart)
    for turn in range(rounds):
        await networks.turn(job.seed("judging", str(turn)))
    members, size = set(job.cohort.clients), len(names)
    requests = {
        c: ScoreNetworksRequest(
            network=spec,
            networks=networks.on_rows[i : size * len(mix) : size],
            num_folds=NUM_FOLDS,
            num_candidates=len(made),
        )
        for i, c in enumerate(names)
        if c in members
    }
    return await job.ask_each_learner(requests)


def _only(found: Collaboration, told: list[str]) -> Collaboration:
    """The weights of these clients alone."""
    keep = np.isin(found.clients, told)
    return replace(found, weights=np.where(keep[:, None], found.weights, 0.0))
