"""One set of weights made of those that clients moved to, by the rule of the job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.maths.robust import MeanRule, bounded_factors, bounded_mean, combined
from kernfed.methods.shares import percent
from kernfed_server.jobs.run import Run

FEWEST = 3
"""Clients with which a median is another thing than their mean."""


MANY = 0.2
"""Part of a network's parameters; where more than that keep their values in a round, it is told."""


class TrainedInPart(Protocol):
    """A reply after training a network, of which some parameters kept their values."""

    @property
    def kept_back(self) -> float:
        """Part of the parameters, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Update:
    """The next weights, and what an operator has to know of how they were made."""

    weights: Array
    notes: Mapping[str, str]
    """Words by subject; each subject is told of once."""

    def told(self, run: Run) -> Array:
        """Tell the notes; returns the weights."""
        for subject, words in self.notes.items():
            run.note_first(subject, words)
        return self.weights


def note_kept_back(run: Run, replies: Mapping[str, TrainedInPart]) -> None:
    """Tell once of each client at which many parameters keep their values in a round."""
    for client, reply in sorted(replies.items()):
        if reply.kept_back > MANY:
            run.note_first(
                f"{client} keeps parameters back",
                f"{client}: {percent(reply.kept_back)} of the network's parameters kept their values in a round, for "
                "fewer rows than policy.min_rows there stand behind their gradients; larger batches "
                "(method.batch_size) or fewer units let more of them move",
            )


def by_rule(arrays: Mapping[str, Array], counted: Mapping[str, float], rule: MeanRule, before: Array) -> Update:
    """Make the next weights by a rule that is not the plain mean.

    Args:
        arrays: What each client moved to.
        counted: By which clients count in a mean.
        rule: Of the job.
        before: The weights that the clients began with.
    """
    if rule.alike:
        notes = {}
        if len(arrays) < FEWEST:
            notes["few"] = (
                f"{len(arrays)} clients answered in a round: of fewer than {FEWEST}, method.aggregate = "
                f'"{rule.aggregate}" is their mean, and one of them moves it at will'
            )
        return Update(combined(list(arrays.values()), rule), notes)
    assert rule.max_norm is not None  # noqa: S101  # the rule is not plain
    factors = bounded_factors(list(arrays.values()), before, rule.max_norm)
    notes = {
        f"bounded {client}": f"{client}: its update was lowered to {percent(factor)} of its norm, to "
        f"{rule.max_norm:g} times the median norm (method.max_norm); later ones as well where they are longer"
        for client, factor in zip(arrays, factors, strict=True)
        if factor < 1.0
    }
    return Update(bounded_mean(list(arrays.values()), before, [counted[c] for c in arrays], factors), notes)


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
    if rule.plain:
        mean: Array = (await asyncio.to_thread(cohort.weighted, replies, rows)).weights
        return mean
    arrays = {client: reply.weights for client, reply in replies.items()}
    counted = cohort.counted({client: float(rows[client]) for client in arrays})
    return (await asyncio.to_thread(by_rule, arrays, counted, rule, before)).told(run)
