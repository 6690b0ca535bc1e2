"""Ridge and lengthscale of a job: as the job file says, or as the clients' rows that are left out ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernfed import rng
from kernfed.arrays import Array, Floats
from kernfed.features.kernels import KernelSpec, PointKernel
from kernfed.federation.cohort import Cohort
from kernfed.methods.distill.messages import LeftOutErrors, LeftOutErrorsRequest
from kernfed.methods.distill.scales import WORST
from kernfed.methods.distill.settings import PLAIN_RIDGE, DistillSettings
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import State

FACTORS = tuple(2.0 ** (k / 2) for k in (0, -1, 1, -2, 2, -3, 3, -4, 4))
"""Multiples of the median distance that are tried; of equal ones the first is taken."""
PENALTIES = tuple(10.0 ** (k / 2) for k in range(4, -13, -1))
"""Numbers n λ that are tried, n rows of all clients; of equal ones the first, which is the smoothest."""
_TIE = 1e-9
"""Errors that differ by less, relatively, are equal: rounding does not choose."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What the job's kernel ridge regression takes."""

    ridge: float
    """λ."""
    factor: float = 1.0
    """By which the agreed lengthscales are multiplied."""
    pooled_penalty: bool = False
    """Whether own rows alone are penalised like the rows of all: by n λ, for which λ was chosen."""

    def kernel(self, base: KernelSpec) -> KernelSpec:
        """The job's kernel, of that with the agreed lengthscales."""
        return replace(base, lengthscales=tuple(self.factor * scale for scale in base.lengthscales))

    def to_arrays(self) -> dict[str, Array]:
        """What `resumed` reads."""
        return {"tuned": np.array([self.ridge, self.factor, float(self.pooled_penalty)])}


def resumed(state: State | None) -> Tuned | None:
    """What an earlier life of the run took; None: it is not known."""
    if state is None or "tuned" not in state:
        return None
    ridge, factor, pooled = state["tuned"].tolist()
    return Tuned(ridge, factor, bool(pooled))


async def tune(
    setup: Setup, settings: DistillSettings, cohort: Cohort, run: Run, base: KernelSpec, deviation: Floats | None
) -> Tuned:
    """Take the job's ridge and lengthscale, or choose them by leave-one-out errors summed over the clients.

    A client predicts each of its own rows from its others, for each multiple of the median distance and each penalty
    n λ on the diagonal of its kernel matrix, and one number for each leaves it. What it sends counts up to `WORST`
    times the error of predicting the mean, so no client alone rules out a choice.

    Args:
        setup: The prepared job.
        settings: Of the job.
        cohort: Whom to ask.
        run: Where notes go.
        base: The job's kernel with the agreed lengthscales.
        deviation: Of all clients' targets, (C,), where it is known.
    """
    given = PLAIN_RIDGE if isinstance(settings.ridge, str) else settings.ridge
    scaled = settings.lengthscale == "auto" and base.kernel is not PointKernel.ONE_PLUS_MIN
    if not scaled and not isinstance(settings.ridge, str):
        return Tuned(given)
    num_rows = sum(setup.agreed.num_rows[client] for client in cohort.clients)
    factors = FACTORS if scaled else (1.0,)
    penalties = PENALTIES if isinstance(settings.ridge, str) else (given * num_rows,)
    request = LeftOutErrorsRequest(
        num_outputs=setup.num_outputs,
        kernel=base,
        free_intercept=settings.free_intercept,
        factors=np.array(factors),
        penalties=np.array(penalties),
        seed=rng.seed(setup.schema.seed, "distill", "left out"),
    )
    otherwise = f"ridge {given:g} and the median lengthscale, for they cannot be chosen by rows that are left out"
    replies = await run.optional(cohort.ask(request, optional=True), otherwise)
    taught = {client: reply for client, reply in replies.items() if reply.num_used > 0}
    if not taught:
        if replies:
            run.note(f"{otherwise}: no client has rows enough")
        return Tuned(given)
    s, r = least(taught, deviation)
    chosen = Tuned(penalties[r] / num_rows, factors[s], pooled_penalty=isinstance(settings.ridge, str))
    scales = listed([f"{scale:.4g}" for scale in chosen.kernel(base).lengthscales])
    missing = [client for client in cohort.clients if client not in taught]
    run.note(
        f"ridge {chosen.ridge:.3g} and lengthscale {scales}, {chosen.factor:.3g} times the agreed one: the least error "
        "of the clients' rows, each left out of its client's own model"
        + (f"; {listed(missing)} had no say" if missing else "")
        + ("; this ridge is an end of what was tried" if len(penalties) > 1 and r in (0, len(penalties) - 1) else "")
    )
    return chosen


def least(replies: Mapping[str, LeftOutErrors], deviation: Floats | None) -> tuple[int, int]:
    """Where the sum over clients is least: the first place, of those that are equal.

    Args:
        replies: By client, each with errors of shape (S, R).
        deviation: Of all clients' targets, (C,), where it is known: it bounds what a client's errors count.
    """
    total = np.zeros_like(next(iter(replies.values())).squared_errors, dtype=np.float64)
    for _, reply in sorted(replies.items()):
        errors = reply.squared_errors
        if deviation is not None:
            errors = np.minimum(errors, WORST * reply.num_used * float(np.square(deviation).sum()))
        total += errors
    s, r = np.argwhere(total <= total.min() * (1.0 + _TIE))[0]
    return int(s), int(r)
