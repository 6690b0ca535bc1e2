"""The ridge of the pooled solution by rows that clients keep apart, before round 1: `ridge = "auto"`.

Parts of the rows are left out in turn, as many as hold 200 rows of all clients together. On the others the pooled
solution is found by FedNewton's messages, ridge by ridge, by tens. The directions of one ridge serve the next one too:
the minimiser over them with another ridge needs no further trip (`BlockConjugateGradients.shifted`). Beside what these
messages let out, one mean loss per client, part and ridge leaves (`metric`), and, of several classes, how many rows are
right.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import QuorumNotMetError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import R, Request
from kernfed.maths.choosing.ridge_search import ENOUGH_APART, RidgeSearch
from kernfed.maths.folds import num_splits
from kernfed.maths.newton import BlockConjugateGradients
from kernfed.methods.ridge.messages import (
    GradientRequest,
    HeldOutLoss,
    HeldOutLossRequest,
    HessianProductRequest,
    NewtonStartRequest,
    NewtonStepRequest,
)
from kernfed.wording import listed
from kernfed_server.jobs.run import Members, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.methods.base import spread_by_ridge
from kernfed_server.methods.ridge.newton import gradient_check

_NEAR = 1e-2
"""Certified relative distance to the solution of the rows that are left, at which its loss is taken: that is then off
by a ten-thousandth of the size of W."""
_MOST_TRIPS = 10
"""Directions asked for per ridge; a ridge that is not reached with them is not taken."""


class _LostError(Exception):
    """A client fell out: what was found is of another problem than the one that is left."""

    def __init__(self, answered: Members) -> None:
        super().__init__()
        self.answered = answered


@dataclass
class _Part:
    """A part of the rows that is left out, and the solution of the others so far."""

    fold: int
    num_apart: Mapping[str, int]
    solver: BlockConjugateGradients | None = None
    ridge: float = 0.0


async def chosen_ridge(setup: Setup, ridge: float, cohort: Cohort, run: Run) -> tuple[float, str]:
    """The ridge with which rows kept apart are predicted best, from one on by tens, and in words how it was found.

    Args:
        setup: Of the job.
        ridge: Where to begin; it stays where nothing can be measured.
        cohort: The clients.
        run: The job's run.
    """
    members = cohort.clients
    while True:
        try:
            return await _Search(setup, ridge, cohort, members).chosen()
        except _LostError as lost:
            for client in sorted(set(members) - set(lost.answered)):
                run.note(f"the ridge is chosen without {client}: {cohort.why_missing(client)}")
            members = lost.answered
        except QuorumNotMetError as err:
            return ridge, f"by the rule, for it cannot be chosen by rows kept apart: {err}"


class _Search:
    """One try, with the same clients from its first trip to its last."""

    def __init__(self, setup: Setup, ridge: float, cohort: Cohort, members: Members) -> None:
        self.setup, self.cohort, self.members = setup, cohort, members
        self.search = RidgeSearch(ridge)
        self.shape = (setup.num_features, setup.num_outputs)

    async def chosen(self) -> tuple[float, str]:
        """See `chosen_ridge`."""
        rows = self.setup.agreed.num_rows
        parts, silent, fold, splits = [], set(self.members), 0, 1
        while fold < splits:
            fold += 1
            found = await self._tell(HeldOutLossRequest(fold=fold, weights=np.zeros(self.shape)))
            num_apart = {client: reply.num_apart for client, reply in found.items()}
            silent -= found.keys()
            splits = num_splits(sum(rows[client] for client in found), ENOUGH_APART)
            if any(num_apart.values()):
                parts.append(_Part(fold, num_apart))
        total = sum(sum(part.num_apart.values()) for part in parts)
        if not parts:
            return self.search.ridge, "by the rule, for no client has enough rows to keep some apart"
        going_on = True
        while going_on:
            self.cohort.let_differ(spread_by_ridge(self.search))
            measured = [await self._loss(part) for part in parts]
            wrong = sum(wrong for _, wrong in measured)
            going_on = self.search.tell(sum(loss for loss, _ in measured) / total, wrong)
            if math.isinf(self.search.level):
                return self.search.best, f"by the rule, for {_MOST_TRIPS} directions do not reach its solution"
        errors = {ridge: "not reached" if math.isinf(e) else f"{e:.4g}" for ridge, e in self.search.losses.items()}
        tried = ", ".join(f"{ridge:.3g}: {error}" for ridge, error in sorted(errors.items()))
        told = f"predicts {total} rows kept apart best; mean square errors by ridge {tried}"
        if (wrong := self.search.wrong[self.search.best]) < total:
            told += f"; with {self.search.best:.3g}, {wrong} of them are classified wrongly"
        if silent:
            told += f"; of {listed(sorted(silent))} none are among these, as their policies let no such errors out"
        return self.search.best, told

    async def _loss(self, part: _Part) -> tuple[float, int]:
        """Sum of the squared errors over the rows apart, with the ridge to try, and how many are classified wrongly.

        Infinity where it is out of reach.
        """
        solver = await self._solved(part)
        if solver is None:
            return math.inf, 0
        found = await self._tell(HeldOutLossRequest(fold=part.fold, weights=solver.weights))
        if lost := {client for client, num in part.num_apart.items() if num} - found.keys():
            raise _LostError(tuple(client for client in self.members if client not in lost))
        apart = [(num, found[client]) for client, num in part.num_apart.items() if num]
        return sum(num * reply.loss for num, reply in apart), sum(num - reply.num_correct for num, reply in apart)

    async def _solved(self, part: _Part) -> BlockConjugateGradients | None:
        ridge, fold = self.search.ridge, part.fold
        if part.solver is None:
            part.solver = await self._started(ridge, fold)
        else:
            part.solver = await asyncio.to_thread(part.solver.shifted, ridge - part.ridge)
        solver, part.ridge = part.solver, ridge
        for _ in range(_MOST_TRIPS):
            z = (await self._mean(NewtonStepRequest(ridge=ridge, gradient=solver.residual, fold=fold))).newton_step
            if solver.relative_bound(z) <= _NEAR:
                return solver
            hz = await self._mean(HessianProductRequest(ridge=ridge, direction=z, fold=fold))
            if not await asyncio.to_thread(solver.absorb, z, hz.product):
                return None
        return None

    async def _started(self, ridge: float, fold: int) -> BlockConjugateGradients:
        num_features, num_outputs = self.shape
        request = NewtonStartRequest(ridge=ridge, num_features=num_features, num_outputs=num_outputs, fold=fold)
        starts = await self._ask(request)
        start = await self._weighted(starts)
        own = {client: reply.weights for client, reply in starts.items()}
        slope = await self._weighted(
            await self._ask(
                GradientRequest(ridge=ridge, weights=start.weights, fold=fold),
                gradient_check(self.setup, ridge, start.weights, own),
            )
        )
        product: Array = slope.gradient + start.moment
        begin = BlockConjugateGradients.start
        return await asyncio.to_thread(begin, start.weights, product, start.moment, self.cohort.float_epsilon)

    async def _mean(self, request: Request[R]) -> R:
        return await self._weighted(await self._ask(request))

    async def _weighted(self, replies: Mapping[str, R]) -> R:
        return await asyncio.to_thread(self.cohort.weighted, replies, self.setup.agreed.num_rows)

    async def _tell(self, request: HeldOutLossRequest) -> dict[str, HeldOutLoss]:
        """Losses of those whose policies let them out; the rows of the others take part, and they keep none apart."""
        replies = await self.cohort.ask(request, clients=self.members, everyone=True, optional=True)
        if lost := self.cohort.faults.keys() & set(self.members):
            raise _LostError(tuple(client for client in self.members if client not in lost))
        return replies

    async def _ask(
        self, request: Request[R], refusing: Callable[[str, R], Iterable[str]] = lambda *_: ()
    ) -> dict[str, R]:
        replies = await self.cohort.ask(request, clients=self.members, everyone=True, refusing=refusing)
        if tuple(replies) != self.members:
            raise _LostError(tuple(replies))
        return replies
