"""Cox's proportional hazards: Newton's method on the partial likelihood in which each client is a stratum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.columns.plan import without_coefficient
from kernfed.errors import DataError, NotConvergedError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import R, Request
from kernfed.maths.likelihood.inference import lacking_rank
from kernfed.maths.likelihood.iteration import Iteration, Sums
from kernfed.methods.survival.cox_finding import CoxFinding
from kernfed.methods.survival.cox_messages import CoxEnd, CoxEndRequest, CoxSums, CoxSumsRequest
from kernfed.methods.survival.settings import CoxSettings
from kernfed.models.beside import ModelsBeside
from kernfed.models.coefficient_table import BESIDE, CoefficientTable
from kernfed.wording import listed
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.run import Members, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import State, json_array, names_array
from kernfed_server.methods.base import Workflow, as_they_are
from kernfed_server.methods.survival.outcome import CoxAtEnd, cox_finding, risk_model

_MEASURE = "distance to the maximum of the likelihood, in standard errors, about"
_ENOUGH = 10
"""Events for each coefficient."""
_FLAT = 1e-12
"""Information of an event about a scaled column from which on the column varies."""


async def run(setup: Setup, settings: CoxSettings, cohort: Cohort, run: Run) -> ModelsBeside:
    """Maximise the partial likelihood, by sums that the clients tell.

    What leaves a client: in each round the gradient, the Hessian and the value of its partial likelihood at the
    coefficients of now, and the number of events (`gradient`, `sufficient_statistic`); at the end pairs that are in
    order, a baseline hazard by groups of events, and with robust errors a sum of products of score residuals. The
    coordinator learns these per client.

    Source: D. R. Cox, *Regression models and life-tables*, JRSS B 34 (1972) 187-220.
    """
    fit = _Fit(setup, settings, cohort, run)
    fit.resume()
    async for round_num in run.rounds(0 if fit.finding else settings.rounds):
        sums = await fit.sums()
        where = fit.iteration
        if where.rose(sums):
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
    table = CoefficientTable(fit.finding.coefficients)
    return ModelsBeside(risk_model(setup, fit.finding, settings), {BESIDE: table})


class _Fit:
    """The job's parts, and what a checkpoint has to hold of them."""

    def __init__(self, setup: Setup, settings: CoxSettings, cohort: Cohort, run: Run) -> None:
        self.setup, self.settings, self.cohort, self._run = setup, settings, cohort, run
        schema = setup.schema
        apart = {settings.event, *without_coefficient(schema.columns, schema.features, setup.agreed.mean)}
        self.names = tuple(name for name in schema.features if name not in apart)
        if not self.names:
            raise DataError(f"data.features has no column beside the event's, {settings.event!r}; add columns to it")
        self.members: Members = cohort.clients
        self.iteration = Iteration.at(np.zeros(len(self.names)))
        self.null: float | None = None
        self.finding: CoxFinding | None = None

    def resume(self) -> None:
        """Go on from a checkpoint, if there is one."""
        state: State | None = self._run.resumed
        if state is None:
            return
        self.iteration = Iteration.from_arrays(state)
        null = state.number("null")
        self.null = None if np.isnan(null) else null
        if "finding" in state:
            self.finding = CoxFinding.from_json(state.json("finding"))
        recorded = state.names("members")
        self.members = self._run.without_lost(recorded, tuple(c for c in recorded if c in self.cohort.clients))
        if self.members != recorded:
            self.iteration, self.null = self.iteration.anew(), None

    async def sums(self) -> Sums:
        """The sums of all rows at the coefficients of now.

        Raises:
            DataError: There are no events, or columns add up to others.
        """
        before = self.members
        told: CoxSums = await self._ask(CoxSumsRequest(coefficients=self.iteration.coefficients, **self._asked()))
        if self.members != before:
            self.iteration, self.null = self.iteration.anew(), None
        if not self.iteration.num_evaluated:
            self._note_few(told.deaths)
        hessian = told.hessian.astype(np.float64) * told.num_rows
        flat = np.diag(hessian) <= _FLAT * told.deaths
        hessian[flat], hessian[:, flat] = 0.0, 0.0
        if problem := lacking_rank(hessian, self.names):
            raise DataError(
                f"{problem}, among the rows of each client that are at risk together, so there are no coefficients of "
                "their own; remove one of the columns from data.features"
            )
        deviance = 2.0 * told.loss * told.num_rows
        if not self.iteration.num_evaluated:
            self.null = -deviance / 2.0
        return Sums(told.gradient.astype(np.float64) * told.num_rows, hessian, deviance, told.deaths)

    def step(self, sums: Sums) -> bool:
        """Go to the next point; whether this one is where it ends.

        Raises:
            NotConvergedError: Coefficients grow without end.
        """
        self.iteration, step = self.iteration.stepped(sums, dispersion=1.0, curved=True)
        if told := self.iteration.infinite(step, self.names):
            raise NotConvergedError(
                f"coefficients of {listed(told)} grow without end, since the event comes first, or last, wherever "
                "these columns are greatest: the likelihood has no maximum (it is monotone); leave them out, or join "
                "levels with few events"
            )
        return self.iteration.distance <= self.settings.tolerance

    async def finish(self, coefficients: Floats, sums: Sums, *, arrived: bool) -> None:
        """Ask for what standard errors are made of, and tell the result."""
        before = self.members
        request = CoxEndRequest(
            coefficients=coefficients,
            robust=self.settings.errors == "robust",
            baseline=self.settings.baseline,
            **self._asked(),
        )
        replies: Mapping[str, CoxEnd] = await self.cohort.ask(request, clients=self.members, everyone=True)
        self.members = self._run.without_lost(self.members, tuple(replies))
        if self.members != before:
            raise DataError(
                "a client was lost while standard errors were computed, so they would be of other rows than the "
                "coefficients; submit the job again"
            )
        end = CoxAtEnd(coefficients, sums, self.null, replies, self.iteration.num_evaluated)
        self.finding = cox_finding(self.setup, self.settings, self.names, end)
        self._run.publish(self.finding)
        self._run.ends(self._arrival(arrived=arrived))

    def to_arrays(self) -> Mapping[str, Array]:
        """The state for a checkpoint."""
        null = np.nan if self.null is None else self.null
        found = {**self.iteration.to_arrays(), "members": names_array(self.members), "null": np.array([null])}
        return found if self.finding is None else {**found, "finding": json_array(self.finding.to_json())}

    async def _ask(self, request: Request[R]) -> R:
        """The mean over the rows of those of the members who answer; who does not is out of the problem."""
        replies = await self.cohort.ask(request, clients=self.members, everyone=True)
        self.members = self._run.without_lost(self.members, tuple(replies))
        rows = {client: float(getattr(reply, "num_rows", 0)) for client, reply in replies.items()}
        return self.cohort.weighted(replies, rows)

    def _asked(self) -> dict[str, Any]:
        settings = self.settings
        return {"event": settings.event, "ties": settings.ties, "num_coefficients": len(self.names)}

    def _note_few(self, deaths: int) -> None:
        """Refuse no events, and tell of few.

        Raises:
            DataError: There are none.
        """
        num = len(self.names)
        if not deaths:
            raise DataError(
                f"no client has enough rows in which the event came; column {self.settings.event!r} is to be 1 there"
            )
        if deaths < _ENOUGH * num:
            self._run.note(
                f"{deaths} events for {num} coefficients, fewer than {_ENOUGH} for each: estimates and standard errors "
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


WORKFLOWS = {"cox": Workflow(run, adapt=as_they_are)}
