"""What a generalised linear model leaves: the finding with its coefficients, and a model that predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.likelihood.inference import Units, coefficients, covariance, errors_by
from kernfed.maths.likelihood.iteration import Sums
from kernfed.maths.losses import Link
from kernfed.methods.glm.families import FAMILIES
from kernfed.methods.glm.finding import INTERCEPT, GlmFinding
from kernfed.methods.glm.messages import GlmEnd
from kernfed.methods.glm.settings import GlmSettings
from kernfed.models.global_model import GlobalModel
from kernfed_server.jobs.assembly import job_facts, slopes_model
from kernfed_server.jobs.start.preparation import Setup

_NAMES = {Link.IDENTITY: "identity", Link.LOGISTIC: "logit", Link.EXPONENTIAL: "log"}
"""Of links, as statistics has them: by what they do with a mean."""


@dataclass(frozen=True, slots=True)
class End:
    """The last coefficients, of scaled columns, and the sums of all rows there."""

    coefficients: Floats
    """Shape (K,)."""
    sums: Sums
    pearson: float
    dispersion: float
    told: GlmEnd
    """Means over the rows of all clients, and the number of all groups."""


def finding_of(
    setup: Setup, settings: GlmSettings, names: Sequence[str], end: End, null_deviance: float | None, iterations: int
) -> GlmFinding:
    """The finding, in the columns' own units.

    Args:
        setup: Of the job.
        settings: Of the method.
        names: Of the K coefficients.
        end: Where it ended.
        null_deviance: Of the intercept alone, where it is known.
        iterations: Points at which sums were asked for.
    """
    told, robust, family = end.told, settings.errors == "robust", settings.family_of(setup.schema.task)
    rows, freedom = told.num_rows, told.num_rows - len(names)
    matrix = covariance(
        end.sums.hessian,
        told.information.astype(np.float64) * rows,
        told.scores.astype(np.float64) * rows if robust else None,
        dispersion=end.dispersion,
        rows=rows,
        groups=told.num_groups,
    )
    units = _units(setup, names, intercept=settings.intercept).matrix()
    matrix, estimates = units @ matrix @ units.T, units @ end.coefficients
    student = FAMILIES[family].dispersed and not robust
    log_likelihood = told.log_likelihood * rows
    return GlmFinding(
        family=family,
        link=_NAMES[FAMILIES[family].link],
        target=setup.schema.target,
        errors=errors_by(robust=robust, groups=told.num_groups, rows=rows),
        confidence=settings.confidence,
        rows=rows,
        coefficients=coefficients(
            names, estimates, matrix, confidence=settings.confidence, freedom=freedom if student else None
        ),
        covariance=tuple(tuple(row) for row in matrix.tolist()),
        freedom=freedom,
        student=student,
        deviance=end.sums.deviance,
        dispersion=end.dispersion,
        pearson=end.pearson,
        log_likelihood=log_likelihood,
        aic=2.0 * len(names) - 2.0 * log_likelihood,
        iterations=iterations,
        null_deviance=null_deviance,
        groups=told.num_groups if robust else None,
    )


def model_of(setup: Setup, finding: GlmFinding, settings: GlmSettings) -> GlobalModel:
    """A linear model with the family's link, on the columns in their own units; it needs the offset, and no weights."""
    slopes = {settings.offset: 1.0} | {found.name: found.estimate for found in finding.coefficients}
    return slopes_model(
        setup,
        job_facts(setup, settings),
        slopes,
        without=settings.weights,
        at_zero=slopes.get(INTERCEPT, 0.0),
        link=FAMILIES[settings.family_of(setup.schema.task)].link,
    )


def _units(setup: Setup, names: Sequence[str], *, intercept: bool) -> Units:
    places = [setup.schema.features.index(name) for name in names if name != INTERCEPT]
    return Units(setup.agreed.mean[places], setup.agreed.deviation[places], intercept)
