"""Shares of the classes among the test points that count, and ratios by class to the mixture of all training rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import DataError, JobError
from kernfed.methods.reweight.label_shift import LabelShift
from kernfed.methods.reweight.messages import (
    MIXTURE,
    ClassPriorRequest,
    PriorSource,
)
from kernfed.methods.reweight.mixture import class_ratios
from kernfed.methods.reweight.mixture_messages import ClassCountsRequest, MixtureClassesRequest
from kernfed.wording import listed
from kernfed_server.methods.reweight.classes import pooled_priors
from kernfed_server.methods.reweight.reweighting import Reweighting

_UNTOLD = "test classes that the classifier does not tell apart"


async def test_priors(job: Reweighting) -> Floats:
    """Shares of the classes among the test points that count, (K, C), by client name."""
    settings = job.settings
    source, asked = PriorSource(settings.ratios.source), [settings.target] if settings.target else None
    if source is PriorSource.BLACK_BOX and settings.ratios.pools_classifier:
        shifts = await _pooled_priors(job, asked)
    else:
        request = ClassPriorRequest(
            source=source, seed=job.seed("black box"), all_or_nothing=settings.ratios.all_or_nothing
        )
        replies = await job.gate.ask(request, clients=asked)
        shifts = {c: LabelShift(_rounded(r.prior), r.smallest_singular_value, r.fallback) for c, r in replies.items()}
    for client in sorted(shifts):
        if reason := shifts[client].fallback:
            which = "all test classes" if settings.ratios.all_or_nothing else _UNTOLD
            job.say(f"{client}: shares of {which} are taken to be those of its training rows: {reason}")
    if source is PriorSource.BLACK_BOX:
        told = {c: f"{shifts[c].smallest_singular_value:.3g}" for c in sorted(shifts)}
        if settings.ratios.pools_classifier:
            text = f"smallest singular value of the pooled classifier's confusion matrix: {next(iter(told.values()))}"
        else:
            listed_values = ", ".join(f"{c} {value}" for c, value in told.items())
            text = f"smallest singular values of the classifiers' confusion matrices: {listed_values}"
        job.say(text)
    shared = "shares of its classes" + (", sums over its rows" if settings.ratios.pools_classifier else "")
    job.sharing = dict.fromkeys(shifts, shared)
    return np.array([shifts[c].prior for c in sorted(shifts)])


async def mix_classes(job: Reweighting, shares: Mapping[str, float]) -> None:
    """Ratios by class to the mixture of all training rows."""
    while True:
        tests = await test_priors(job)
        counts = await job.gate.ask(ClassCountsRequest(num_outputs=job.num_classes), fresh=True)
        rows = {c: np.asarray(reply.counts, np.float64) for c, reply in counts.items()}
        ratios, job.mixed, uncovered = class_ratios(tests, rows, shares)
        request = MixtureClassesRequest(variant=MIXTURE, ratios=ratios, uncovered=uncovered, note="")
        await job.gate.ask(request, fresh=True)
        if job.still_mixed():
            return


async def _pooled_priors(job: Reweighting, asked: list[str] | None) -> dict[str, LabelShift]:
    silent = sorted(c for c in job.cohort.clients if not job.looked[c].shares_sums)
    if silent:
        job.say(
            f"{listed(silent)}: the policy lets no sums over rows leave, so the classifier is that of the other "
            "clients' rows"
        )
    if len(silent) == len(job.cohort.clients):
        raise JobError(
            "no client lets sums over rows leave, which the pooled classifier is made of; use "
            'method.ratios.classifier = "own", or have `sufficient_statistic` and `mean_embedding` in policy.allow'
        )
    shifts = await pooled_priors(
        job.gate,
        job.looked,
        job.cohort.clients,
        num_columns=job.num_columns,
        num_classes=job.num_classes,
        num_points=job.settings.num_points,
        seed=job.seed("black box"),
        all_or_nothing=job.settings.ratios.all_or_nothing,
    )
    wanted = asked or job.cohort.clients
    if lacking := sorted(c for c in wanted if c not in shifts):
        job.say(f"{listed(lacking)}: no test points, so the model is for those of the others")
    if len(lacking) == len(wanted):
        raise DataError("there are no test points; give the data sets a test or an unlabelled partition")
    return {c: shift for c, shift in shifts.items() if c in wanted}


def _rounded(prior: Floats) -> Floats:
    """A distribution whose sum is 1 to rounding, for it came as it was sent."""
    share: Floats = np.clip(np.asarray(prior, np.float64), 0.0, None)
    share /= share.sum()
    return share
