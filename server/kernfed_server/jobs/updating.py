"""One set of weights made of those that clients moved to, by the rule of the job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.maths.robust import MeanRule, bounded_factors, bounded_mean, combined
from kernfed.methods.shares import percent
from kernfed_server.jobs.run import Run

FEWEST = 3
"""Clients with which a median is another thing than their mean."""


async def updated(
    cohort: Cohort, run: Run, replies: Mapping[str, Any], rows: Mapping[str, int], rule: MeanRule, before: Array
) -> Array:
    """Make the next weights of the clients' own.

    Args:
        cohort: Its clients count as it says.
        run: Takes notes, once, of whose updates were bounded, and of too few clients for a median.
        replies: By client; each has `weights`.
        rows: By which clients count in a mean.
        rule: Of the job.
        before: The weights that the clients began with.
    """
    arrays = {client: reply.weights for client, reply in replies.items()}
    if rule.alike:
        if len(arrays) < FEWEST:
            run.note_once(
                f"{len(arrays)} clients answered in a round: of fewer than {FEWEST}, method.aggregate = "
                f'"{rule.aggregate}" is their mean, and one of them moves it at will'
            )
        return await asyncio.to_thread(combined, list(arrays.values()), rule)
    if rule.max_norm is None:
        mean: Array = (await asyncio.to_thread(cohort.weighted, replies, rows)).weights
        return mean
    factors = await asyncio.to_thread(bounded_factors, list(arrays.values()), before, rule.max_norm)
    for client, factor in zip(arrays, factors, strict=True):
        if factor < 1.0:
            run.note_first(
                f"bounded {client}",
                f"{client}: its update was lowered to {percent(factor)} of its norm, to {rule.max_norm:g} times the "
                "median norm (method.max_norm); later ones as well where they are longer",
            )
    counted = cohort.counted({client: float(rows[client]) for client in arrays})
    weights = [counted[client] for client in arrays]
    return await asyncio.to_thread(bounded_mean, list(arrays.values()), before, weights, factors)
