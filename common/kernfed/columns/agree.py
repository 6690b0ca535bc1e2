"""How clients come to one plan of their columns: levels that any has; means, medians and ranks over all their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kernfed.arrays import Floats
from kernfed.columns.plan import (
    NUM_QUANTILES,
    ColumnFound,
    ColumnKind,
    ColumnPlan,
    MissingRule,
    feature_names,
    twice,
)
from kernfed.errors import DataError
from kernfed.tables.spellings import SPELT, alike, in_order, told_alike
from kernfed.wording import listed

MAX_LEVELS = 1000
"""Most levels of a column, where the job names none."""


def open_plans(plans: Sequence[ColumnPlan]) -> tuple[ColumnPlan, ...]:
    """Those that the clients are to agree on."""
    return tuple(plan for plan in plans if not plan.settled)


def settle(
    plans: Sequence[ColumnPlan],
    found: Mapping[str, Sequence[ColumnFound]],
    counted: Mapping[str, Sequence[float]] | None = None,
) -> tuple[ColumnPlan, ...]:
    """Take the levels of all clients, and the means, medians and quantiles over their rows.

    Args:
        plans: Of the job.
        found: Client to what it has in each column of `open_plans`.
        counted: Client to the weight of its rows in each; unset: their numbers.

    Raises:
        DataError: No client has enough rows for a column, or levels look like spellings of one.
    """
    agreed, place = [], 0
    for plan in plans:
        if plan.settled:
            agreed.append(plan)
            continue
        of_clients = {client: columns[place] for client, columns in sorted(found.items())}
        weights = {
            client: float((counted or {}).get(client, [c.num_rows for c in found[client]])[place])
            for client in of_clients
        }
        agreed.append(
            _levels(plan, of_clients) if plan.kind is ColumnKind.CATEGORY else _fill(plan, of_clients, weights)
        )
        place += 1
    if name := twice(feature_names(agreed)):
        raise DataError(f"two feature columns would be called {name!r}; rename a column or a level everywhere")
    return tuple(agreed)


def _levels(plan: ColumnPlan, found: Mapping[str, ColumnFound]) -> ColumnPlan:
    spelt = alike({client: column.levels for client, column in found.items()})
    if spelt:
        told, mapped = told_alike(spelt)
        raise DataError(
            f"levels of column {plan.name!r} differ only by {SPELT}: {told}; write values = "
            f"{{ {mapped} }} for the column into the client file of those who have them, or, if these are different "
            "levels, name all in data.columns"
        )
    levels = in_order({level for column in found.values() for level in column.levels})
    if not levels:
        raise DataError(
            f"no client has a level of column {plan.name!r} in as many rows as the job and policy.min_rows ask for; "
            "name the levels in data.columns, or leave the column out"
        )
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"the clients' data have {len(levels):,} levels in column {plan.name!r}, more than {MAX_LEVELS:,}, which "
            "looks like an identifier; name the levels in data.columns, or leave the column out"
        )
    return replace(plan, levels=tuple(levels), settled=True)


def _fill(plan: ColumnPlan, found: Mapping[str, ColumnFound], weights: Mapping[str, float]) -> ColumnPlan:
    total = sum(weights.values())
    if total <= 0:
        raise DataError(
            f"no client has a value of column {plan.name!r} in as many rows as its policy.min_rows asks for, so there "
            f"is no {_wanted(plan)}; leave the column out ({listed(sorted(found))})"
        )
    if plan.agrees_on_quantiles:
        levels = (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES
        knots = _pooled(found, weights, levels if plan.rank else np.array([0.5]))
        if plan.rank:
            return replace(plan, knots=tuple(knots.tolist()), settled=True)
        whole = plan.kind in (ColumnKind.ORDINAL, ColumnKind.BOOLEAN)
        return replace(plan, fill=float(np.rint(knots[0]) if whole else knots[0]), settled=True)
    mean = sum(weights[client] * column.mean for client, column in found.items() if weights[client]) / total
    return replace(plan, fill=float(mean), settled=True)


def _pooled(found: Mapping[str, ColumnFound], weights: Mapping[str, float], levels: Floats) -> Floats:
    """Quantiles of the rows of all clients at some levels, (Q,): each client's own ones stand for its rows alike."""
    told = [client for client, column in sorted(found.items()) if column.quantiles and weights[client] > 0]
    values = np.concatenate([found[client].quantiles for client in told])
    weight = np.concatenate([np.full(len(q := found[client].quantiles), weights[client] / len(q)) for client in told])
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order]) - weight[order] / 2.0
    return np.asarray(np.interp(levels, below / weight.sum(), values[order]), dtype=np.float64)


def _wanted(plan: ColumnPlan) -> str:
    if plan.rank:
        return "rank of its values"
    return "median for gaps" if plan.missing is MissingRule.MEDIAN else "mean for gaps"
