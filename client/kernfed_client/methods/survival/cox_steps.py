"""The client's half of Cox's proportional hazards: its rows are a stratum, of which it tells sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernfed.arrays import Floats, Integers
from kernfed.columns.plan import without_coefficient
from kernfed.errors import PolicyError, WireError
from kernfed.maths.few.behind import few_behind, wanted
from kernfed.maths.few.neighbours import group_means, group_sizes
from kernfed.maths.likelihood.inference import score_products
from kernfed.methods.survival.cox_messages import CoxEnd, CoxEndRequest, CoxSums, CoxSumsRequest
from kernfed.methods.survival.partial import Point, Rows, concordance
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.survival.columns import came, times_of


def sums(job: LocalJob, request: CoxSumsRequest) -> CoxSums:
    """Partial likelihood, gradient and Hessian, each over n.

    Raises:
        DataError: The event's column holds no outcomes.
        PolicyError: Few rows stand behind them at these coefficients.
    """
    point, num = _at(job, request), job.num_rows
    earliest = point.rows.times[: job.file.policy.min_rows]
    return CoxSums(
        num_rows=num,
        deaths=point.rows.num_deaths,
        gradient=point.gradient() / num,
        hessian=point.hessian() / num,
        loss=max(-point.log_likelihood(), 0.0) / num,
        early=bool(earliest.mean() < 0.0),
    )


def end(job: LocalJob, request: CoxEndRequest) -> CoxEnd:
    """Score residuals by group, over n; concordance; and the baseline hazard by groups of neighbouring events.

    Raises:
        DataError: As `sums`.
        PolicyError: As `sums`.
    """
    point = _at(job, request)
    rows = point.rows
    scores = np.zeros((rows.x.shape[1],) * 2)
    if request.robust:
        scores = score_products(point.residuals(), job.data.train.group) / job.num_rows
    pairs, concordant, equal = concordance(rows.times, rows.died, point.eta)
    times, deaths, hazards = _baseline(job, request, point)
    return CoxEnd(
        num_rows=job.num_rows,
        scores=scores,
        num_groups=job.data.train.num_groups,
        pairs=pairs,
        concordant=concordant,
        equal=equal,
        times=times,
        deaths=deaths,
        hazards=hazards,
    )


def _baseline(job: LocalJob, request: CoxEndRequest, point: Point) -> tuple[Floats, Integers, Floats]:
    """Times, events and increments of the hazard, as far as enough rows are at risk. Each sums over enough events."""
    rows, least = point.rows, job.file.policy.min_rows
    num = _enough_at_risk(point, least) if request.baseline else 0
    if num < least:
        return np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0)
    shift = np.exp(-(_centre(job, request) @ request.coefficients.astype(np.float64)))
    when, each = rows.times[rows.died][:num], point.hazards()[:num] * shift
    sizes = group_sizes(num, num, least)
    means = group_means(when[:, None], sizes)[:, 0]
    summed = np.add.reduceat(each, np.concatenate([[0], np.cumsum(sizes)[:-1]]))
    times, place = np.unique(means, return_inverse=True)
    deaths, hazards = np.zeros(len(times), dtype=np.int64), np.zeros(len(times))
    np.add.at(deaths, place, sizes)
    np.add.at(hazards, place, summed)
    return times, deaths, hazards


def _enough_at_risk(point: Point, least: int) -> int:
    """Events, from the first on, at each of which the sum over rows at risk has enough rows behind it."""
    if least == 1:
        return point.rows.num_deaths
    weights = point.weights / point.weights.max()
    both = np.column_stack([weights, np.square(weights)])[::-1].cumsum(axis=0)[::-1][point.rows.first]
    left = len(weights) - point.rows.first
    enough = (np.square(both[:, 0]) >= both[:, 1] * wanted(least, len(weights))[0]) & (left >= least)
    return int(np.logical_and.accumulate(enough).sum())


def _at(job: LocalJob, request: CoxSumsRequest | CoxEndRequest) -> Point:
    """The rows at the coefficients asked for.

    Raises:
        PolicyError: A few rows outweigh all others there.
    """
    centre = _centre(job, request)
    if len(centre) != len(request.coefficients):
        raise WireError(f"{request.step} has {len(request.coefficients)} coefficients, want {len(centre)}")

    def made() -> Rows:
        x = job.x_train[:, _places(job, request.event)] - centre
        return Rows.of(x, times_of(job), came(job, request.event), request.ties)

    rows = job.memo(("cox", request.event, request.ties), made)
    point = Point.at(rows, request.coefficients.astype(np.float64))
    # Of the means that are subtracted at the events, a row's part is the number of events expected of it.
    if few_behind(point.expected(), job.file.policy.min_rows):
        raise PolicyError(
            "at these coefficients few training rows stand behind the sums: others have hardly any weight; a column "
            "that tells at once who has the event does that"
        )
    return point


def _places(job: LocalJob, event: str) -> list[int]:
    schema = job.schema
    apart = {event, *without_coefficient(schema.columns, schema.features, job.mean)}
    return [j for j, name in enumerate(schema.features) if name not in apart]


def _centre(job: LocalJob, request: CoxSumsRequest | CoxEndRequest) -> Floats:
    """Means of the scaled columns here, (K,): a shift changes no sum, and columns that do not vary are 0 then."""
    found: Floats = job.x_train[:, _places(job, request.event)].mean(axis=0)
    return found


STEPS: dict[type[Any], Any] = {CoxSumsRequest: sums, CoxEndRequest: end}
"""Steps of this module, by the request that they answer."""
