"""Generalised linear models: Newton's method on the likelihood of all rows, of which clients tell sums."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.columns.plan import without_coefficient
from kernfed.errors import DataError, NotConvergedError
from kernfed.federation.cohort import Cohort
from kernfed.maths.likelihood.inference import lacking_rank
from kernfed.maths.likelihood.iteration import Iteration, Sums
from kernfed.maths.losses import Link
from kernfed.methods.glm.families import FAMILIES, Family, FamilyName
from kernfed.methods.glm.finding import INTERCEPT, GlmFinding
from kernfed.methods.glm.messages import GlmEnd, GlmEndRequest, GlmStart, GlmStartRequest, GlmSums, GlmSumsRequest
from kernfed.methods.glm.settings import GlmSettings
from kernfed.models.beside import ModelsBeside
from kernfed.models.coefficient_table import BESIDE, CoefficientTable
from kernfed.wording import listed
from kernfed_server.jobs.likelihood import ROBUST, LikelihoodFit
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.base import Workflow, as_they_are
from kernfed_server.methods.glm.consistent import Starts, other_at_end, part_of
from kernfed_server.methods.glm.outcome import End, finding_of, model_of


async def run(setup: Setup, settings: GlmSettings, cohort: Cohort, run: Run) -> ModelsBeside:
    """Maximise the likelihood of all rows, by sums that the clients tell.

    What leaves a client: means of the target (`summary`), in each round the gradient, the Hessian and the deviance at
    the coefficients of now (`gradient`, `sufficient_statistic`), and at the end the information, and with robust errors
    a sum of products of gradients. The coordinator learns these per client.

    Source: P. McCullagh and J. A. Nelder, *Generalized Linear Models*, 2nd edition (1989), section 2.5.
    """
    fit = _Fit(setup, settings, cohort, run)
    if run.resumed is None:
        await fit.start()
    else:
        fit.resume(run.resumed)
    finding = await fit.maximise()
    return ModelsBeside(model_of(setup, finding, settings), {BESIDE: CoefficientTable(finding.coefficients)})


@dataclass(frozen=True, slots=True)
class _Told(Sums):
    """Sums of all rows at a point."""

    pearson: float = 0.0


class _Fit(LikelihoodFit[GlmFinding, _Told]):
    """A fit of the family; `null` is the deviance of the intercept alone."""

    def __init__(self, setup: Setup, settings: GlmSettings, cohort: Cohort, run: Run) -> None:
        schema = setup.schema
        unused = without_coefficient(schema.columns, schema.features, setup.agreed.mean, reference=settings.intercept)
        apart = {settings.offset, settings.weights, *unused}
        names = [name for name in schema.features if name not in apart]
        super().__init__(GlmFinding, [INTERCEPT, *names] if settings.intercept else names, settings.rounds, cohort, run)
        self.setup, self.settings = setup, settings
        self.family_name = settings.family_of(schema.task)
        self.family: Family = FAMILIES[self.family_name]
        self._starts: Starts | None = None
        """While the fit is where it began."""
        self._figures: dict[str, Mapping[str, float]] = {}
        """Of a row, by client, at the coefficients of now."""

    async def start(self) -> None:
        """Ask for what a fit begins with."""
        settings = self.settings
        asked = GlmStartRequest(family=self.family_name, offset=settings.offset, weights=settings.weights)
        replies = await self.ask(asked)
        self._note_few(self.weighted(replies))
        self._begin_with(replies)

    def _begin_with(self, replies: Mapping[str, GlmStart]) -> None:
        """Begin at the mean of these clients' targets."""
        told = self.weighted(replies)
        self._starts = Starts(replies, told.numerator / told.denominator if told.denominator > 0 else 0.0)
        if self.settings.intercept:
            first = np.arange(len(self.names)) == 0
            self.iteration = Iteration.at(np.where(first, self.family.intercept(self._starts.mean), 0.0))

    async def sums(self) -> _Told:
        """See `LikelihoodFit`."""
        replies = await self._replies()
        while self._starts is not None and self._starts.replies.keys() > replies.keys():
            self._begin_with({client: self._starts.replies[client] for client in replies})
            replies = await self._replies()
        at_null, self._starts = self._starts_at_null, None
        told = self.weighted(replies)
        num = told.num_rows
        hessian = told.hessian.astype(np.float64) * num
        if problem := lacking_rank(hessian, self.names):
            raise DataError(
                f"{problem}, over the rows of all clients, so there are no coefficients of their own; remove one of "
                "the columns from data.features"
            )
        found = _Told(told.gradient.astype(np.float64) * num, hessian, told.deviance * num, num, told.pearson * num)
        if at_null:
            self.null = found.deviance
        return found

    async def _replies(self) -> Mapping[str, GlmSums]:
        """Of the members, at the coefficients of now."""
        request = GlmSumsRequest(coefficients=self.iteration.coefficients, **self._asked())
        starts = self._starts if self._starts_at_null else None

        def refusing(client: str, reply: GlmSums) -> Iterator[str]:
            if starts is not None:
                yield from starts.contradictions(self.family_name, client, reply)

        part = functools.partial(part_of, request.coefficients)
        replies = await self.ask_sums(request, part, curved=self._curved, refusing=refusing)
        self._figures = {"a deviance by row": {client: reply.deviance for client, reply in replies.items()}}
        if self.family_name is not FamilyName.GAUSSIAN:  # of which it is the deviance
            pearson = {client: reply.pearson for client, reply in replies.items()}
            self._figures["a statistic of Pearson's by row"] = pearson
        return replies

    @property
    def _curved(self) -> bool:
        return self.family.link is not Link.IDENTITY

    def step(self, sums: _Told) -> bool:
        """See `LikelihoodFit`."""
        dispersion = self._dispersion(sums)
        self.iteration, step = self.iteration.stepped(sums, dispersion=dispersion, curved=self._curved)
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

    async def finish(self, coefficients: Floats, sums: _Told) -> GlmFinding:
        """See `LikelihoodFit`."""
        dispersion = self._dispersion(sums)
        scale = sums.deviance / sums.rows if self.family_name is FamilyName.GAUSSIAN else dispersion
        members = self.members
        request = GlmEndRequest(
            coefficients=coefficients,
            dispersion=max(scale, 1e-300),
            robust=self.settings.errors == "robust",
            **self._asked(),
        )
        parts = self.parts

        def refusing(client: str, reply: GlmEnd) -> Iterator[str]:
            if client in parts:
                yield from other_at_end(request, parts[client], reply)

        replies = await self.ask(request, refusing)
        self.refuse_others(members)
        told = self.weighted(replies)
        for what, figures in self._figures.items():
            self.note_far(what, figures)
        self.note_far(
            "an information by row", {client: float(np.trace(r.information)) for client, r in replies.items()}
        )
        self.note_far(ROBUST, {client: float(np.trace(r.scores)) for client, r in replies.items()})
        end = End(coefficients, sums, sums.pearson, dispersion, told)
        return finding_of(self.setup, self.settings, self.names, end, self.null, self.iteration.num_evaluated)

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
        """Whether the fit is where it began, at the maximum of the likelihood of the intercept alone."""
        if self._starts is None or not self.settings.intercept:
            return False
        binomial = self.family_name is FamilyName.BINOMIAL
        return not binomial or (not self.settings.offset and 0.0 < self._starts.mean < 1.0)

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
        self.note_few(rows, what)


WORKFLOWS = {"glm": Workflow(run, adapt=as_they_are)}
