"""Generalised linear models: Newton's method on the likelihood of all rows, of which clients tell sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.columns.plan import without_coefficient
from kernfed.errors import DataError, NotConvergedError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import R, Request
from kernfed.maths.likelihood.inference import lacking_rank
from kernfed.maths.likelihood.iteration import Iteration, Sums
from kernfed.maths.losses import Link
from kernfed.methods.glm.families import FAMILIES, Family, FamilyName
from kernfed.methods.glm.finding import INTERCEPT, GlmFinding
from kernfed.methods.glm.messages import GlmEndRequest, GlmStart, GlmStartRequest, GlmSums, GlmSumsRequest
from kernfed.methods.glm.settings import GlmSettings
from kernfed.models.beside import ModelsBeside
from kernfed.models.coefficient_table import BESIDE, CoefficientTable
from kernfed.wording import listed
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.run import Members, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import State, json_array, names_array
from kernfed_server.methods.base import Workflow, as_they_are
from kernfed_server.methods.glm.outcome import End, finding_of, model_of

_MEASURE = "distance to the maximum of the likelihood, in standard errors, about"
_ENOUGH = 10
"""Rows, or rows of the rarer class, for each coefficient."""


async def run(setup: Setup, settings: GlmSettings, cohort: Cohort, run: Run) -> ModelsBeside:
    """Maximise the likelihood of all rows, by sums that the clients tell.

    What leaves a client: means of the target (`summary`), in each round the gradient, the Hessian and the deviance at
    the coefficients of now (`gradient`, `sufficient_statistic`), and at the end the information, and with robust errors
    a sum of products of gradients. The coordinator learns these per client.

    Source: P. McCullagh and J. A. Nelder, *Generalized Linear Models*, 2nd edition (1989), section 2.5.
    """
    fit = _Fit(setup, settings, cohort, run)
    await fit.resume_or_start()
    async for round_num in run.rounds(0 if fit.finding else settings.rounds):
        sums = await fit.sums()
        where = fit.iteration
        if where.rose(sums.pooled):
            fit.iteration, arrived = where.half_back(), False
        else:
            arrived = fit.step(sums)
        if arrived or round_num == settings.rounds:
            await fit.finish(where.coefficients, sums, arrived=arrived)
        await run.record(round_num, fit.to_arrays())
        if arrived:
            break
    if fit.finding is None:
        raise DataError("the job has no rounds left, and no coefficients; submit it again")
    return ModelsBeside(model_of(setup, fit.finding, settings), {BESIDE: CoefficientTable(fit.finding.coefficients)})


@dataclass(frozen=True, slots=True)
class _Told:
    """Sums of all rows at a point."""

    pooled: Sums
    pearson: float
    rows: int


class _Fit:
    """The job's parts, and what a checkpoint has to hold of them."""

    def __init__(self, setup: Setup, settings: GlmSettings, cohort: Cohort, run: Run) -> None:
        self.settings, self.cohort, self._run = settings, cohort, run
        self.family_name = settings.family_of(setup.schema.task)
        self.family: Family = FAMILIES[self.family_name]
        schema = setup.schema
        unused = without_coefficient(schema.columns, schema.features, setup.agreed.mean, reference=settings.intercept)
        apart = {settings.offset, settings.weights, *unused}
        columns = tuple(name for name in schema.features if name not in apart)
        self.setup, self.names = setup, ((INTERCEPT, *columns) if settings.intercept else columns)
        self.members: Members = cohort.clients
        self.iteration = Iteration.at(np.zeros(len(self.names)))
        self.null_deviance: float | None = None
        self.finding: GlmFinding | None = None

    async def resume_or_start(self) -> None:
        """Go on from a checkpoint, or ask for what a fit begins with."""
        resumed = self._run.resumed
        if resumed is not None:
            self._resume(resumed)
            return
        settings = self.settings
        asked = GlmStartRequest(family=self.family_name, offset=settings.offset, weights=settings.weights)
        told = await self._ask(asked)
        self._note_few(told)
        if settings.intercept:
            mean = told.numerator / told.denominator if told.denominator > 0 else 0.0
            first = np.arange(len(self.names)) == 0
            self.iteration = Iteration.at(np.where(first, self.family.intercept(mean), 0.0))

    async def sums(self) -> _Told:
        """The sums of all rows at the coefficients of now.

        Raises:
            DataError: Columns add up to others.
        """
        before = self.members
        request = GlmSumsRequest(coefficients=self.iteration.coefficients, **self._asked())
        told: GlmSums = await self._ask(request)
        if self.members != before:
            self.iteration, self.null_deviance = self.iteration.anew(), None
        hessian = told.hessian.astype(np.float64) * told.num_rows
        if problem := lacking_rank(hessian, self.names):
            raise DataError(
                f"{problem}, over the rows of all clients, so there are no coefficients of their own; remove one of "
                "the columns from data.features"
            )
        gradient = told.gradient.astype(np.float64) * told.num_rows
        pooled = Sums(gradient, hessian, told.deviance * told.num_rows, told.num_rows)
        if not self.iteration.num_evaluated and self._starts_at_null:
            self.null_deviance = pooled.deviance
        return _Told(pooled, told.pearson * told.num_rows, told.num_rows)

    def step(self, sums: _Told) -> bool:
        """Go to the next point; whether this one is where it ends.

        Raises:
            NotConvergedError: Coefficients grow without end.
        """
        curved = self.family.link is not Link.IDENTITY
        self.iteration, step = self.iteration.stepped(sums.pooled, dispersion=self._dispersion(sums), curved=curved)
        if not self.family.dispersed:
            self._refuse_infinite(step)
        return self.iteration.distance <= self.settings.tolerance

    def _refuse_infinite(self, step: Floats) -> None:
        told = self.iteration.infinite(step, self.names)
        told = tuple(name for name in told if name != INTERCEPT) or told  # at the columns' means, which it follows
        binomial = self.family_name is FamilyName.BINOMIAL
        why = "tell the two classes apart, or nearly" if binomial else "tell rows of count 0 apart"
        if told:
            raise NotConvergedError(
                f"coefficients of {listed(told)} grow without end, since these columns {why} (separation): the "
                "likelihood has no maximum; leave them out, join levels with few rows, or use method newton, whose "
                "ridge keeps them finite"
            )

    async def finish(self, coefficients: Floats, sums: _Told, *, arrived: bool) -> None:
        """Ask for what standard errors are made of, and tell the result."""
        dispersion = self._dispersion(sums)
        scale = sums.pooled.deviance / sums.rows if self.family_name is FamilyName.GAUSSIAN else dispersion
        before = self.members
        request = GlmEndRequest(
            coefficients=coefficients,
            dispersion=max(scale, 1e-300),
            robust=self.settings.errors == "robust",
            **self._asked(),
        )
        told = await self._ask(request)
        if self.members != before:
            raise DataError(
                "a client was lost while standard errors were computed, so they would be of other rows than the "
                "coefficients; submit the job again"
            )
        end = End(coefficients, sums.pooled, sums.pearson, dispersion, told)
        self.finding = finding_of(
            self.setup, self.settings, self.names, end, self.null_deviance, self.iteration.num_evaluated
        )
        self._run.publish(self.finding)
        self._run.ends(self._arrival(arrived=arrived))

    def to_arrays(self) -> Mapping[str, Array]:
        """The state for a checkpoint."""
        null = np.nan if self.null_deviance is None else self.null_deviance
        found = {**self.iteration.to_arrays(), "members": names_array(self.members), "null": np.array([null])}
        return found if self.finding is None else {**found, "finding": json_array(self.finding.to_json())}

    def _resume(self, state: State) -> None:
        self.iteration = Iteration.from_arrays(state)
        null = state.number("null")
        self.null_deviance = None if np.isnan(null) else null
        if "finding" in state:
            self.finding = GlmFinding.from_json(state.json("finding"))
        recorded = state.names("members")
        self.members = self._run.without_lost(recorded, tuple(c for c in recorded if c in self.cohort.clients))
        if self.members != recorded:
            self.iteration, self.null_deviance = self.iteration.anew(), None

    async def _ask(self, request: Request[R]) -> R:
        """The mean over the rows of those of the members who answer; who does not is out of the problem."""
        replies = await self.cohort.ask(request, clients=self.members, everyone=True)
        self.members = self._run.without_lost(self.members, tuple(replies))
        rows = {client: float(getattr(reply, "num_rows", 0)) for client, reply in replies.items()}
        return self.cohort.weighted(replies, rows)

    def _asked(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "family": self.family_name,
            "offset": settings.offset,
            "weights": settings.weights,
            "intercept": settings.intercept,
            "num_coefficients": len(self.names),
        }

    @property
    def _starts_at_null(self) -> bool:
        """Whether a fit begins at the maximum of the likelihood of the intercept alone."""
        settings = self.settings
        return settings.intercept and not (self.family_name is FamilyName.BINOMIAL and settings.offset)

    def _dispersion(self, sums: _Told) -> float:
        return sums.pearson / (sums.rows - len(self.names)) if self.family.dispersed else 1.0

    def _note_few(self, told: GlmStart) -> None:
        """Refuse fewer rows than coefficients, and tell of few.

        Raises:
            DataError: There are no more rows than coefficients.
        """
        rows, num = told.num_rows, len(self.names)
        if rows <= num:
            raise DataError(f"{rows} rows for {num} coefficients; name fewer columns in data.features, or add rows")
        what = "rows"
        if self.family_name is FamilyName.BINOMIAL and told.weight > 0:
            share = told.numerator / told.weight
            rows, what = int(min(share, 1.0 - share) * rows + 0.5), "rows of the rarer class"
        if rows < _ENOUGH * num:
            self._run.note(
                f"{rows} {what} for {num} coefficients, fewer than {_ENOUGH} for each: estimates and standard errors "
                "lean on few rows; name fewer columns in data.features"
            )

    def _arrival(self, *, arrived: bool) -> Arrival:
        distance = self.iteration.distance
        told = f"the maximum of the likelihood is about {distance:.2g} standard errors away"
        if arrived:
            return Arrival(told, True, distance, _MEASURE)
        return Arrival(
            f"all {self.settings.rounds} rounds are used up, and {told}; raise method.rounds", False, distance, _MEASURE
        )


WORKFLOWS = {"glm": Workflow(run, adapt=as_they_are)}
