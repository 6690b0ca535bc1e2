"""Ratios that each client fits: to the pool of unlabelled samples, to its own test points, or by its classes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from functools import partial

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import DataError, InvalidReplyError
from kernfed.methods.reweight.messages import (
    LabelRatiosRequest,
    MatchRatiosRequest,
    PriorSource,
    RatiosHeld,
    RatiosKept,
    ShareSampleRequest,
    UnlabelledSample,
)
from kernfed.wording import listed
from kernfed_server.methods.reweight.label_priors import test_priors
from kernfed_server.methods.reweight.reweighting import Reweighting


async def fit(job: Reweighting, variant: str, clients: list[str], looked: Mapping[str, RatiosHeld]) -> None:
    """Have clients fit the ratios of a variant.

    Args:
        job: Takes what was shared.
        variant: Whose.
        clients: Who lack them.
        looked: What clients told of themselves.
    """
    settings = job.settings
    if settings.ratios.source == "matching":
        await _match(job, variant, clients, looked)
        return
    own = variant == "own"
    request = LabelRatiosRequest(
        variant=variant,
        own=own,
        test_priors=np.zeros((0, job.num_classes)) if own else await test_priors(job),
        source=PriorSource(settings.ratios.source),
        seed=job.seed("black box"),
        optional=own and variant != job.scope,
        all_or_nothing=settings.ratios.all_or_nothing,
    )
    await _kept(job, request, clients)


async def _kept(job: Reweighting, request: MatchRatiosRequest | LabelRatiosRequest, clients: list[str]) -> None:
    """Have ratios fitted; a model that is only compared with is left out where they do not exist."""

    def check(client: str, reply: RatiosKept) -> None:
        if reply.lacking and not request.optional:
            raise InvalidReplyError(f"{client} found no ratios and did not fail")

    found = await job.gate.ask(request, check, clients, fresh=True)
    lacking = {client: found[client].lacking for client in sorted(found) if found[client].lacking}
    if lacking:
        job.skipped = (*job.skipped, request.variant)
        reasons = "; ".join(f"{client}: {reason}" for client, reason in lacking.items())
        job.say(
            f"the model with each client's {request.variant} ratios, to compare with, is left out, for these do "
            f"not exist everywhere ({reasons})"
        )


async def _match(job: Reweighting, variant: str, clients: list[str], looked: Mapping[str, RatiosHeld]) -> None:
    spec = job.settings.ratios.spec(job.seed("ratios"))
    if variant == "own":
        nothing = np.zeros((0, job.num_columns))
        request = MatchRatiosRequest(
            variant=variant,
            own=True,
            points=nothing,
            point_weights=np.zeros(0),
            ratios=spec,
            features=job.features,
            optional=variant != job.scope,
        )
        await _kept(job, request, clients)
        return
    wanted = [job.settings.target] if job.settings.target else list(job.cohort.clients)
    givers = [c for c in wanted if looked[c].shares and looked[c].num_points > 0]
    if not givers:
        raise DataError(
            f"nobody gives unlabelled points for density ratios, of {listed(wanted)}: by policy.allow, or for want of "
            "policy.min_rows points; give more test rows, or an unlabelled partition, there"
        )
    sample = ShareSampleRequest(num_points=job.settings.num_points, seed=job.seed("sample"), features=job.features)
    shared = await job.gate.ask(sample, partial(_check_sample, job.num_columns), clients=givers)
    form = "" if job.features.as_they_are else f", each as {job.num_columns} features"
    job.sharing = {
        c: f"{len(shared[c].points)} unlabelled points{form}" if c in shared else "nothing" for c in job.cohort.clients
    }
    points, weights = await asyncio.to_thread(shuffled_pool, shared)
    job.say(
        f"{len(points)} unlabelled points of {len(shared)} clients were pooled{form}, shuffled by a secret order "
        f"and sent to {len(clients)} clients; the coordinator keeps none of them"
    )
    del shared
    request = MatchRatiosRequest(
        variant=variant,
        own=False,
        points=points,
        point_weights=weights,
        ratios=spec,
        features=job.features,
        optional=False,
    )
    await _kept(job, request, clients)


def _check_sample(num_columns: int, client: str, sample: UnlabelledSample) -> None:
    if sample.points.shape[1] != num_columns:
        raise InvalidReplyError(f"{client} gave points of {sample.points.shape[1]} columns, not {num_columns}")


def shuffled_pool(shared: Mapping[str, UnlabelledSample]) -> tuple[Floats, Floats]:
    """Put samples together in an order that nobody can tell the clients from.

    Where all gave as many points, weights are all alike; otherwise they tell which points come from clients that gave
    as many, but not from whom.

    Returns:
        Points, shape (N, P), and 1/n of each, n the number of points that its client gave, shape (N,).
    """
    points = np.concatenate([np.asarray(shared[c].points, np.float64) for c in sorted(shared)])
    weights = np.concatenate([np.full(len(shared[c].points), 1.0 / len(shared[c].points)) for c in sorted(shared)])
    # Not from the job's seed, which others know: clients sort the points again, so no result depends on it.
    order = np.random.default_rng(secrets.randbits(128)).permutation(len(points))
    return points[order], weights[order]
