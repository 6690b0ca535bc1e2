"""Normal equations of the clients of a personalised job, and what is made of them all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.linalg import solve

from kernfed.arrays import Floats
from kernfed.errors import QuorumNotMetError
from kernfed.federation.messages.base import Request
from kernfed.maths.triangles import packed_size, unpack
from kernfed.methods.personalise.messages import FactorRequest, ProjectRequest, Statistics, StatisticsRequest
from kernfed.methods.personalise.plausible import impossible_statistics
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.jobs.kept_replies import replies_array, replies_of
from kernfed_server.methods.personalise.directions import FEATURES_KEPT, leading_directions, pool_factors
from kernfed_server.methods.personalise.weights import Personalisation

STATISTICS = "statistics"
"""Name of the normal equations among what is agreed on, until the weights are found."""


async def collect_statistics(job: Personalisation) -> None:
    """Ask for normal equations where weights or trainer need them; without them, fall back and say so."""
    if job.settings.weights != "crossfit" and job.settings.trainer != "exact":
        return
    try:
        replies = await _ask(job)
    except QuorumNotMetError:
        replies = {}
    wrong = _impossible(job, replies)
    replies = {client: reply for client, reply in replies.items() if client not in wrong}
    missing = [client for client in job.clients if client not in replies]
    sharing = len(job.clients) - len(missing)
    if not missing:
        job.statistics = replies
        return
    faults = {client: fault.message for client, fault in job.cohort.faults.items()} | wrong
    reasons = sorted({faults.get(client, "no answer in time") for client in missing})
    before = f'weights = "{job.settings.weights}", trainer = "{job.settings.trainer}"'
    if sharing >= max(2, len(missing)):
        job.statistics = {client: replies[client] for client in job.clients if client in replies}
        job.say(
            f"{', '.join(missing)}: no normal equations ({'; '.join(reasons)}). Nobody learns from these clients, "
            "and what is made of all normal equations, such as the global model of the exact trainer, is without "
            f"their rows. Each of them still learns from the other {sharing} clients and from its own rows, which "
            f"stay there. The other {sharing} keep {before} among themselves"
        )
        return
    job.fall_back()
    job.say(
        f"{', '.join(missing)}: no normal equations ({'; '.join(reasons)}), which {before} need of at least half "
        "of the clients, and of two. All clients of this job go on by their embeddings, with "
        f'weights = "{job.settings.weights}", trainer = "{job.settings.trainer}"'
    )


def _impossible(job: Personalisation, replies: Mapping[str, Statistics]) -> dict[str, str]:
    """Clients whose normal equations are of no rows, each with why; those of directions are not judged."""
    if job.basis is not None:
        return {}
    found = {}
    for client, reply in replies.items():
        why = impossible_statistics(reply, job.setup.agreed.spec.kernel, constant=job.setup.intercept)
        if why:
            found[client] = why
            job.cohort.discount(client, StatisticsRequest.step)
    return found


async def _ask(job: Personalisation) -> dict[str, Statistics]:
    """Normal equations of all inputs, or of the features' leading directions where there are many features."""
    outputs, num_features = job.setup.num_outputs, job.setup.num_features
    wanted = job.settings.directions
    limit = num_features if wanted == "all" else FEATURES_KEPT if wanted == "auto" else wanted
    if num_features <= limit:
        request = statistics_request(job)
        kept = job.run.agreed.get(STATISTICS)
        if kept is not None:  # of a round 1 that was not closed
            return replies_of(kept, request)
        replies = await job.cohort.ask(request, everyone=True)
        job.run.agreed.put(STATISTICS, replies_array(replies, job.cohort.float_bits))
        return replies
    factors = await job.cohort.ask(FactorRequest(num_inputs=job.num_inputs, num_outputs=outputs), everyone=True)
    job.pooled = pool_factors(factors)
    first = int(job.setup.intercept)
    job.basis, held = leading_directions(job.pooled.gram[first:, first:], None if wanted == "auto" else limit)
    job.say(
        f"ridge models lie in the {job.basis.shape[1]} leading directions of {num_features} features, which hold "
        f'{held:.2%} of their second moments; directions = "all" uses every feature, with more time and traffic'
    )
    return await job.cohort.ask(statistics_request(job), everyone=True)


def statistics_request(job: Personalisation) -> Request[Statistics]:
    """Asks for normal equations of all inputs, or in the directions in which ridge models lie."""
    size, outputs = job.num_used, job.setup.num_outputs
    packed = packed_size(size)
    if job.basis is None:
        return StatisticsRequest(num_inputs=size, num_outputs=outputs, num_packed=packed)
    return ProjectRequest(basis=job.basis, num_inputs=size, num_outputs=outputs, num_packed=packed)


def federated_model(job: Personalisation) -> Floats:
    """Ridge on all rows alike, from the sum of the normal equations; on centred features, shape (M, C)."""
    parts = list(job.statistics.values())
    rows = np.array([part.num_rows for part in parts], dtype=np.float64)
    share = rows / rows.sum()
    first = int(job.setup.intercept)
    if job.pooled is not None:
        gram, moment = job.pooled.gram, job.pooled.moment
    else:
        gram = unpack(np.sum([p * s.gram for p, s in zip(share, parts, strict=True)], axis=0), job.num_inputs)
        moment = np.sum([p * s.moment for p, s in zip(share, parts, strict=True)], axis=0)
    gram = gram[first:, first:] + ridge_of(job.settings) * np.eye(job.setup.num_features)
    solved: Floats = np.ascontiguousarray(solve(gram, moment[first:], assume_a="pos"))
    return solved
