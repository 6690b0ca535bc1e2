"""The client's half of generalised linear models: sums over the training rows at coefficients that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.columns.plan import without_coefficient
from kernfed.errors import DataError, PolicyError, WireError
from kernfed.maths.few.behind import few_behind
from kernfed.maths.likelihood.inference import score_products
from kernfed.maths.losses import MOST_MARGIN, Link
from kernfed.methods.glm.families import FAMILIES, Family
from kernfed.methods.glm.messages import (
    GlmEnd,
    GlmEndRequest,
    GlmStart,
    GlmStartRequest,
    GlmSums,
    GlmSumsRequest,
)
from kernfed_client.data.local_job import LocalJob


@dataclass(frozen=True, slots=True)
class _Rows:
    """A client's rows as the family takes them, n of them."""

    x: Floats
    """Scaled columns, and a first one of 1 where there is an intercept, (n, K)."""
    y: Floats
    offset: Floats
    weight: Floats
    """w, (n,)."""
    family: Family

    def eta(self, coefficients: Floats) -> Floats:
        """Linear predictors, (n,)."""
        found: Floats = self.x @ coefficients + self.offset
        return found


def start(job: LocalJob, request: GlmStartRequest) -> GlmStart:
    """Means of what a fit begins with.

    Raises:
        DataError: The target cannot be of the family, or a weight is not above 0.
    """
    family, where = FAMILIES[request.family], f"data set {job.dataset}"
    y = _target(job)
    if problem := family.fault(y):
        raise DataError(
            f'{where}: column {job.schema.target!r} holds {problem}; method.family = "{request.family}" cannot be its '
            "family, so choose another one, or correct the column"
        )
    weight = _column(job, request.weights, 1.0)
    if not (weight > 0).all():
        raise DataError(
            f"{where}: column {request.weights!r} holds weights that are not above 0; correct it, or leave "
            "method.weights out"
        )
    numerator, denominator = family.start(y, _column(job, request.offset, 0.0))
    return GlmStart(
        num_rows=job.num_rows,
        numerator=float((weight * numerator).mean()),
        denominator=float((weight * denominator).mean()),
        weight=float(weight.mean()),
    )


def sums(job: LocalJob, request: GlmSumsRequest) -> GlmSums:
    """Gradient, Hessian, deviance and Pearson's statistic, each over n.

    Raises:
        PolicyError: Few rows stand behind them at these coefficients.
    """
    rows, eta = _at(job, request)
    score = rows.weight * rows.family.score(rows.y, eta)
    information = rows.weight * rows.family.information(rows.y, eta, expected=False)
    return GlmSums(
        num_rows=job.num_rows,
        gradient=rows.x.T @ score / len(eta),
        hessian=_products(rows.x, information),
        deviance=float((rows.weight * rows.family.deviance(rows.y, eta)).mean()),
        pearson=float((rows.weight * rows.family.pearson(rows.y, eta)).mean()),
    )


def end(job: LocalJob, request: GlmEndRequest) -> GlmEnd:
    """Expected information, scores by group, and the log-likelihood, each over n.

    Raises:
        PolicyError: As `sums`.
    """
    if request.dispersion <= 0:
        raise WireError(f"{request.step}: the dispersion is {request.dispersion}, and not above 0")
    rows, eta = _at(job, request)
    information = rows.weight * rows.family.information(rows.y, eta, expected=True)
    scores = np.zeros((rows.x.shape[1],) * 2)
    if request.robust:
        each = rows.x * (rows.weight * rows.family.score(rows.y, eta))[:, None]
        scores = score_products(each, job.data.train.group) / len(eta)
    return GlmEnd(
        num_rows=job.num_rows,
        information=_products(rows.x, information),
        scores=scores,
        num_groups=job.data.train.num_groups,
        log_likelihood=float(rows.family.log_likelihood(rows.y, eta, rows.weight, request.dispersion).mean()),
    )


def _products(x: Floats, weight: Floats) -> Floats:
    found: Floats = (x * weight[:, None]).T @ x / len(x)
    return (found + found.T) / 2.0


def _at(job: LocalJob, request: GlmSumsRequest | GlmEndRequest) -> tuple[_Rows, Floats]:
    """The rows, and their linear predictors at the coefficients asked for."""
    rows = _rows(job, request)
    if rows.x.shape[1] != len(request.coefficients):
        raise WireError(f"{request.step} has {len(request.coefficients)} coefficients, want {rows.x.shape[1]}")
    eta = rows.eta(request.coefficients.astype(np.float64))
    _refuse_few(rows, eta, job.file.policy.min_rows)
    return rows, eta


def _refuse_few(rows: _Rows, eta: Floats, least: int) -> None:
    """Refuse coefficients at which a few rows outweigh all others, or most are certain of their class.

    Sums at two such sets of coefficients would differ by these few rows. As for networks, `min_rows` rows have to stand
    behind a sum by their effective number, of few rows a sixth.
    """
    if least == 1:
        return
    sizes = rows.weight * rows.family.sizes(rows.y, eta)
    sure = rows.family.link is Link.LOGISTIC and float((np.abs(eta) > MOST_MARGIN).mean()) > 0.5
    if sure or few_behind(sizes, least):
        raise PolicyError(
            "at these coefficients few training rows stand behind the sums: others are predicted with certainty, or "
            "have hardly any weight; a column that tells the target apart, or a very uneven offset or weight, does that"
        )


def _rows(job: LocalJob, request: GlmSumsRequest | GlmEndRequest) -> _Rows:
    schema = job.schema
    unused = without_coefficient(schema.columns, schema.features, job.mean, reference=request.intercept)
    apart = {request.offset, request.weights, *unused}
    columns = [j for j, name in enumerate(schema.features) if name not in apart]

    def made() -> _Rows:
        x, ones = job.x_train[:, columns], np.ones(job.num_rows)
        # Without an intercept the means go back in: centred columns have one in them.
        x = np.column_stack([ones, x]) if request.intercept else x + (job.mean / job.deviation)[columns]
        offset, weight = _column(job, request.offset, 0.0), _column(job, request.weights, 1.0)
        return _Rows(x, _target(job), offset, weight, FAMILIES[request.family])

    return job.memo(("glm", request.family, request.offset, request.weights, request.intercept), made)


def _target(job: LocalJob) -> Floats:
    """Numbers, or 1 for the second class, (n,)."""
    return np.asarray(job.targets_train, dtype=np.float64)


def _column(job: LocalJob, name: str, otherwise: float) -> Floats:
    """A column in its own units, (n,).

    Raises:
        WireError: The job has none of the name.
    """
    if not name:
        return np.full(job.num_rows, otherwise)
    if name not in job.schema.features:
        raise WireError(f"glm: column {name!r} is not among the job's features")
    return job.data.train.x[:, job.schema.features.index(name)]


STEPS: dict[type[Any], Any] = {GlmStartRequest: start, GlmSumsRequest: sums, GlmEndRequest: end}
"""Steps of this module, by the request that they answer."""
