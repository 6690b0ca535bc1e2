"""Alarms before round 1: a client whose column seems to be in another unit than at the others, or lies elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.errors import DataError
from kernfed.federation.exchange import Fault
from kernfed.federation.messages.data import DataDescription, DataSchema, LearningTask
from kernfed.maths.apart import THOUSANDFOLD, how_far
from kernfed.maths.statistics import Moments
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.scales import FEWEST_CLIENTS, moments_of

FEWEST_ROWS = 8
"""Clients with fewer say little about a deviation."""

SPREAD = 30.0
"""Factor between deviations that is told whatever the means are."""

AGREED = 4.0
"""Factor between deviations that is told if the means, a deviation or more away from 0, differ by the same one..."""

ALIKE = 1.5
"""...up to this factor."""

ELSEWHERE = 3.0
"""Deviations, of its own and of the others', by which a client's mean that is told of differs from theirs."""


def unit_factors(mean: Floats, deviation: Floats) -> Floats:
    """Tell by which factor each client's columns seem to be in another unit than the others'; 1 where they do not.

    The others' mean and deviation are the medians over clients; with two clients each is held against the other.

    Args:
        mean: Shape (clients, columns).
        deviation: The same; 0 says nothing.

    Returns:
        Factors, the same shape.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        known = np.where(deviation > 0, deviation, np.nan)
        spread, centre = known[::-1], mean[::-1]
        if len(mean) > 2:
            some = ~np.isnan(known).all(axis=0)
            spread = np.full(mean.shape[1], np.nan)
            spread[some] = np.nanmedian(known[:, some], axis=0)
            centre = np.median(mean, axis=0)
        factor = known / spread
        far = np.maximum(factor, 1 / factor)
        ratio = (mean / centre) / factor
        beside = (np.abs(mean) >= known) & (np.abs(centre) >= spread) & (ratio > 1 / ALIKE) & (ratio < ALIKE)
    told = (far >= SPREAD) | (beside & (far >= AGREED))
    return np.where(told, factor, 1.0)


def places(mean: Floats, deviation: Floats) -> Floats:
    """Tell by how many deviations each client's mean differs from the others', the medians over three clients or more.

    Args:
        mean: Shape (clients, columns).
        deviation: The same.

    Returns:
        The difference over the larger of both deviations, the same shape; 0 where neither is above 0.
    """
    apart = mean - np.median(mean, axis=0)
    largest = np.maximum(deviation, np.median(deviation, axis=0))
    return np.divide(apart, largest, out=np.zeros_like(apart), where=largest > 0)


def thousandfold(schema: DataSchema, described: Mapping[str, DataDescription]) -> dict[str, Fault]:
    """`far_off` by what the clients state of their data; the ranges that streams agree on decide in place of this."""
    told = {
        client: (np.array([d.target_mean]), np.array([d.target_deviation]))
        for client, d in sorted(described.items())
        if d.num_rows >= FEWEST_ROWS
    }
    return {} if schema.on_stream else far_off(schema, told)


def far_off(schema: DataSchema, told: Mapping[str, tuple[Floats, Floats]]) -> dict[str, Fault]:
    """Clients whose targets lie `THOUSANDFOLD` of the others' deviations off, or spread so much more, and why.

    Of two clients nobody can say which one is wrong. A range for the target in the job file decides in place of this.

    Args:
        schema: Of the job.
        told: Mean and deviation of each client's targets, (C,) each.
    """
    judged = schema.task is LearningTask.REGRESSION and all(r.column != schema.target for r in schema.ranges)
    if len(told) < FEWEST_CLIENTS or not judged:
        return {}
    return {
        client: Fault.of(
            DataError(
                f"its targets lie {factor:.3g} of the other clients' deviations off, or spread so much more; check "
                f"the units of {schema.target!r} at all clients, or say in data.ranges which values are right"
            )
        )
        for client, factor in how_far(told).items()
        if factor >= THOUSANDFOLD
    }


def note_units(schema: DataSchema, described: Mapping[str, DataDescription], run: Run) -> None:
    """Note client, column and factor where a unit seems to differ, in features and in a regression's target.

    Where it does not, note columns whose mean lies elsewhere than at all other clients.
    """
    clients = [client for client, d in sorted(described.items()) if d.num_rows >= FEWEST_ROWS]
    if len(clients) < 2:
        return
    stated = [moments_of(described[client]) for client in clients]
    target = [(described[client].target_mean, described[client].target_deviation) for client in clients]
    mean = np.column_stack([np.array([m.mean for m in stated]), [m for m, _ in target]])
    deviation = np.column_stack([np.array([m.deviation for m in stated]), [d for _, d in target]])
    names = [*schema.features, schema.target]
    factors = unit_factors(mean, deviation)
    for client, row in zip(clients, factors, strict=True):
        columns = np.flatnonzero(row != 1.0)
        if len(clients) == 2 and not (row > 1.0).any():
            continue  # told of the other client
        found = [f"{names[j]} {_times(float(row[j]))}" for j in columns if len(clients) > 2 or row[j] > 1.0]
        if found:
            others = "the other clients'" if len(clients) > 2 else f"those of {next(c for c in clients if c != client)}"
            run.note(
                f"{client}: values spread otherwise than {others}, as if in another unit: {listed(found)}; bring them "
                "to one unit at every client"
            )
    _note_places(names, clients, np.where(factors == 1.0, places(mean, deviation), 0.0), run)


def note_places(schema: DataSchema, stated: Mapping[str, Moments], run: Run) -> None:
    """Note clients and columns whose means, as stated later, lie elsewhere than at all others; not those told before.

    Args:
        schema: Of the job.
        stated: By client, of the features, then of the target, or of one column for each class.
        run: Where the notes go.
    """
    clients = [client for client, m in sorted(stated.items()) if m.num_rows >= FEWEST_ROWS]
    if not clients:
        return
    mean, deviation = (np.array([getattr(stated[c], part) for c in clients]) for part in ("mean", "deviation"))
    outputs = mean.shape[1] - len(schema.features)
    names = [*schema.features, *(schema.classes if outputs > 1 else [schema.target])]
    _note_places(names, clients, places(mean, deviation), run)


def _note_places(names: list[str], clients: list[str], apart: Floats, run: Run) -> None:
    if len(clients) < 3:
        return
    for client, row in zip(clients, apart, strict=True):
        found = [f"{names[j]} by {abs(row[j]):.2g} deviations" for j in np.flatnonzero(np.abs(row) > ELSEWHERE)]
        if found:
            where = listed(found, 6, more=" and {left} more")
            run.note_first(
                f"elsewhere {client}",
                f"{client}: means lie elsewhere than the other clients': {where}; its rows are of another kind, "
                "or at fault; check signs, units and missing values there",
            )


def note_units_beside(
    schema: DataSchema,
    described: Mapping[str, DataDescription],
    mean: Array,
    deviation: Array,
    origin: str,
    run: Run,
) -> None:
    """Note client, column and factor where a unit seems to differ from that of the rows of an earlier job.

    Args:
        schema: Of the job.
        described: By client.
        mean: Of the earlier rows: feature columns, then the target of a regression, (P + 1,) or (P,).
        deviation: The same.
        origin: Whose rows these are, for people.
        run: Where the notes go.
    """
    names = [*schema.features, schema.target][: len(mean)]
    for client, d in sorted(described.items()):
        if d.num_rows < FEWEST_ROWS:
            continue
        stated = moments_of(d)
        own = np.append(stated.mean, d.target_mean)[: len(mean)]
        spread = np.append(stated.deviation, d.target_deviation)[: len(mean)]
        factors = unit_factors(np.array([own, mean]), np.array([spread, deviation]))[0]
        found = [f"{names[j]} {_times(float(factors[j]))}" for j in np.flatnonzero(factors != 1.0)]
        if found:
            run.note(
                f"{client}: values spread otherwise than those of {origin}, as if in another unit: {listed(found)}; "
                "bring them to the units of that job, or leave the client out"
            )


def _times(factor: float) -> str:
    size = max(factor, 1 / factor)
    words = f"{size:,.2g}" if size < 10 else f"{size:,.0f}"
    return f"by {words} times" if factor > 1 else f"by 1/{words}"
