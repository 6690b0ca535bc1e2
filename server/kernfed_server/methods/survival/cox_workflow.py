"""Cox's proportional hazards: Newton's method on the partial likelihood in which each client is a stratum."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.columns.plan import without_coefficient
from kernfed.errors import DataError, NotConvergedError
from kernfed.federation.cohort import Cohort
from kernfed.maths.likelihood.consistency import Part
from kernfed.maths.likelihood.inference import lacking_rank
from kernfed.maths.likelihood.iteration import Sums
from kernfed.methods.survival.cox_finding import CoxFinding
from kernfed.methods.survival.cox_messages import CoxEnd, CoxEndRequest, CoxSums, CoxSumsRequest
from kernfed.methods.survival.settings import CoxSettings
from kernfed.models.beside import ModelsBeside
from kernfed.models.coefficient_table import BESIDE, CoefficientTable
from kernfed.wording import listed
from kernfed_server.jobs.likelihood import ROBUST, LikelihoodFit
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.base import Workflow, as_they_are
from kernfed_server.methods.survival.outcome import CoxAtEnd, cox_finding, risk_model
from kernfed_server.methods.survival.stated_times import note_early, strange_times

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
    if run.resumed is not None:
        fit.resume(run.resumed)
    finding = await fit.maximise()
    return ModelsBeside(risk_model(setup, finding, settings), {BESIDE: CoefficientTable(finding.coefficients)})


class _Fit(LikelihoodFit[CoxFinding, Sums]):
    """A fit of hazards; `null` is the log-likelihood without columns."""

    def __init__(self, setup: Setup, settings: CoxSettings, cohort: Cohort, run: Run) -> None:
        schema = setup.schema
        apart = {settings.event, *without_coefficient(schema.columns, schema.features, setup.agreed.mean)}
        names = [name for name in schema.features if name not in apart]
        if not names:
            raise DataError(f"data.features has no column beside the event's, {settings.event!r}; add columns to it")
        super().__init__(CoxFinding, names, settings.rounds, cohort, run)
        self.setup, self.settings = setup, settings

    async def sums(self) -> Sums:
        """See `LikelihoodFit`."""
        request = CoxSumsRequest(coefficients=self.iteration.coefficients, **self._asked())
        replies = await self.ask_sums(request, functools.partial(_part, request.coefficients))
        told = self.weighted(replies)
        if not self.iteration.num_evaluated:
            self._note_few(told.deaths)
            note_early((client for client, reply in replies.items() if reply.early), self._run)
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
        """See `LikelihoodFit`."""
        self.iteration, step = self.iteration.stepped(sums, dispersion=1.0, curved=True)
        if told := self.iteration.infinite(step, self.names):
            raise NotConvergedError(
                f"coefficients of {listed(told)} grow without end, since the event comes first, or last, wherever "
                "these columns are greatest: the likelihood has no maximum (it is monotone); leave them out, or join "
                "levels with few events"
            )
        return self.iteration.distance <= self.settings.tolerance

    async def finish(self, coefficients: Floats, sums: Sums) -> CoxFinding:
        """See `LikelihoodFit`."""
        members = self.members
        request = CoxEndRequest(
            coefficients=coefficients,
            robust=self.settings.errors == "robust",
            baseline=self.settings.baseline,
            **self._asked(),
        )
        replies = await self.ask(request, self._strange_times)
        self.refuse_others(members)
        self.note_far("an information by row", {c: float(np.trace(part.hessian)) for c, part in self.parts.items()})
        self.note_far(ROBUST, {client: float(np.trace(reply.scores)) for client, reply in replies.items()})
        told = {client: reply for client, reply in replies.items() if reply.deaths.any()}
        self.note_far(
            "a baseline hazard by event", {c: float(r.hazards.sum() / r.deaths.sum()) for c, r in told.items()}
        )
        end = CoxAtEnd(coefficients, sums, self.null, replies, self.iteration.num_evaluated)
        return cox_finding(self.setup, self.settings, self.names, end)

    def _strange_times(self, client: str, reply: CoxEnd) -> Iterator[str]:
        """Why the times of a baseline cannot be of rows with the times that a client stated before round 1."""
        yield from strange_times(self.setup, client, reply.times, reply.deaths, reply.num_rows)

    def _asked(self) -> dict[str, Any]:
        settings = self.settings
        return {"event": settings.event, "ties": settings.ties, "num_coefficients": len(self.names)}

    def _note_few(self, deaths: int) -> None:
        """Refuse no events, and tell of few.

        Raises:
            DataError: There are none.
        """
        if not deaths:
            raise DataError(
                f"no client has enough rows in which the event came; column {self.settings.event!r} is to be 1 there"
            )
        self.note_few(deaths, "events")


def _part(at: Floats, reply: CoxSums) -> Part:
    return Part(at, reply.loss, -reply.gradient.astype(np.float64), reply.hessian.astype(np.float64))


WORKFLOWS = {"cox": Workflow(run, adapt=as_they_are)}
