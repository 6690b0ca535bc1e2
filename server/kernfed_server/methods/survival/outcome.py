"""What proportional hazards leave: the finding with its coefficients, and a model of risks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.likelihood.inference import Units, coefficients, errors_by
from kernfed.maths.likelihood.iteration import Sums
from kernfed.maths.losses import Link
from kernfed.methods.survival.cox_finding import Baseline, CoxFinding
from kernfed.methods.survival.cox_messages import CoxEnd
from kernfed.methods.survival.settings import CoxSettings
from kernfed.models.global_model import GlobalModel
from kernfed_server.jobs.assembly import job_facts, slopes_model
from kernfed_server.jobs.start.preparation import Setup


@dataclass(frozen=True, slots=True)
class CoxAtEnd:
    """The last coefficients, of scaled columns, and what the clients tell there."""

    coefficients: Floats
    """Shape (K,)."""
    sums: Sums
    null: float | None
    """Log-likelihood where all coefficients are 0."""
    told: Mapping[str, CoxEnd]
    iterations: int


def cox_finding(setup: Setup, settings: CoxSettings, names: Sequence[str], end: CoxAtEnd) -> CoxFinding:
    """The finding, in the columns' own units.

    Args:
        setup: Of the job.
        settings: Of the method.
        names: Of the K columns.
        end: Where it ended.
    """
    from scipy.special import chdtrc  # noqa: PLC0415  # the coordinator starts without scipy

    replies, robust = [end.told[client] for client in sorted(end.told)], settings.errors == "robust"
    matrix: Floats = np.asarray(np.linalg.inv(end.sums.hessian), dtype=np.float64)
    groups, rows = sum(reply.num_groups for reply in replies), sum(reply.num_rows for reply in replies)
    if robust:
        scores = np.sum([reply.scores.astype(np.float64) * reply.num_rows for reply in replies], axis=0)
        matrix = matrix @ scores @ matrix
    places = [setup.schema.features.index(name) for name in names]
    units = Units(setup.agreed.mean[places], setup.agreed.deviation[places], False).matrix()
    matrix, estimates = units @ matrix @ units.T, units @ end.coefficients
    likelihood = -end.sums.deviance / 2.0
    ratio = None if end.null is None else max(2.0 * (likelihood - end.null), 0.0)
    pairs = sum(reply.pairs for reply in replies)
    ordered = sum(reply.concordant + reply.equal / 2.0 for reply in replies)
    return CoxFinding(
        target=setup.schema.target,
        ties=settings.ties,
        errors=errors_by(robust=robust, groups=groups, rows=rows),
        confidence=settings.confidence,
        rows=rows,
        deaths=end.sums.rows,
        coefficients=coefficients(names, estimates, matrix, confidence=settings.confidence, freedom=None),
        covariance=tuple(tuple(row) for row in matrix.tolist()),
        log_likelihood=likelihood,
        aic=2.0 * len(names) - 2.0 * likelihood,
        iterations=end.iterations,
        pairs=pairs,
        null_log_likelihood=end.null,
        likelihood_ratio=ratio,
        p_value=None if ratio is None else float(chdtrc(len(names), ratio)),
        concordance=ordered / pairs if pairs else None,
        groups=groups if robust else None,
        baselines={
            client: Baseline(
                tuple(end.told[client].times.tolist()), tuple(np.cumsum(end.told[client].hazards).tolist())
            )
            for client in sorted(end.told)
            if len(end.told[client].times)
        },
    )


def risk_model(setup: Setup, finding: CoxFinding, settings: CoxSettings) -> GlobalModel:
    """A model of the hazard over that of a row at the columns' means: exp(β'(x - mean)), without the event's column."""
    slopes = {found.name: found.estimate for found in finding.coefficients}
    return slopes_model(
        setup, job_facts(setup, settings), slopes, without=settings.event, at_zero=None, link=Link.EXPONENTIAL
    )
