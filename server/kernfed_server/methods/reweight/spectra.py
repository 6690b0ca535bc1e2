"""Theorem 2's condition before round 1: whether weights can make a client's model worse."""

from __future__ import annotations

import numpy as np

from kernfed.methods.reweight.eigenvalue_condition import NUM_VALUES, EigenvalueCondition, eigenvalue_condition
from kernfed.methods.reweight.spectrum_messages import SpectraRequest
from kernfed.methods.shared_settings import ridge_of
from kernfed.wording import listed
from kernfed_server.methods.reweight.reweighting import Reweighting


async def tell_condition(job: Reweighting) -> None:
    """Ask clients for eigenvalues of their training and test rows, and say where weighting may lose.

    What leaves a client: the largest eigenvalues of both second moments (`sufficient_statistic`).
    """
    mapped = job.settings.trainer == "newton"
    request = SpectraRequest(num_values=NUM_VALUES, mapped=mapped)
    replies = await job.run.optional(job.cohort.ask(request, optional=True), "no eigenvalues are compared")
    ridge = ridge_of(job.settings) if mapped else job.settings.weight_decay
    found: dict[str, EigenvalueCondition] = {}
    for client, reply in replies.items():
        if reply.num_points:
            train, test = (np.asarray(values, dtype=np.float64) for values in (reply.train, reply.test))
            if (of := eigenvalue_condition(train, test, ridge)) is not None:
                found[client] = of
    job.conditions = found
    if replies and (unknown := sorted(set(job.cohort.clients) - set(found))):
        job.say(f"{listed(unknown)}: eigenvalues of training and test rows are not compared, as these are few or kept")
    broken = [f"{c} ({of.directions - of.within} of {of.directions})" for c, of in found.items() if not of.holds]
    if broken:
        job.say(
            "eigenvalues of test rows are beyond those of training rows by more than Theorem 2 allows, so weights may "
            f"lose there: {listed(broken, more=', …')}"
        )
    elif found:
        job.say("all eigenvalues of training and test rows are as alike as Theorem 2 wants")
