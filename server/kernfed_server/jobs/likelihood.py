"""Newton's method on a likelihood of all rows, of which clients tell sums: what methods share at the coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.errors import DataError
from kernfed.federation.apart import CHECK_UNITS
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.base import R, Request
from kernfed.maths.likelihood.consistency import Part, contradiction
from kernfed.maths.likelihood.iteration import Iteration, Sums
from kernfed.methods.finding import Finding
from kernfed.wording import listed
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.run import Members, Run
from kernfed_server.jobs.state import State, json_array, names_array

ENOUGH = 10
"""Rows that tell something, for each coefficient."""
FAR = 100.0
"""Times the largest of all other clients from which on a figure by row of one client is told of."""
ROBUST = "a square of scores by row"
"""What robust standard errors are made of, in words; 0 where they are not asked for."""
_MEASURE = "distance to the maximum of the likelihood, in standard errors, about"

F = TypeVar("F", bound=Finding)
S = TypeVar("S", bound=Sums)


class LikelihoodFit(ABC, Generic[F, S]):
    """Where a fit stands, and what a checkpoint has to hold of it."""

    def __init__(self, kind: type[F], names: Sequence[str], num_rounds: int, cohort: Cohort, run: Run) -> None:
        """Begin at 0.

        Args:
            kind: Of finding.
            names: Of the K coefficients.
            num_rounds: Most points at which sums are asked for.
            cohort: The clients.
            run: Of the job.
        """
        self.names, self.cohort = tuple(names), cohort
        self._kind, self._num_rounds, self._run = kind, num_rounds, run
        self.members: Members = cohort.clients
        self.iteration = Iteration.at(np.zeros(len(self.names)))
        self.null: float | None = None
        """What the model without columns has of the likelihood, where that is known."""
        self.finding: F | None = None
        self.parts: Mapping[str, Part] = {}
        """What each client told last, in this life of the run."""

    @abstractmethod
    async def sums(self) -> S:
        """The sums of all rows at the coefficients of now.

        Raises:
            DataError: Columns add up to others, or there are too few rows.
        """

    @abstractmethod
    def step(self, sums: S) -> bool:
        """Go to the next point; whether this one is where it ends.

        Raises:
            NotConvergedError: Coefficients grow without end.
        """

    @abstractmethod
    async def finish(self, coefficients: Floats, sums: S) -> F:
        """Ask for what standard errors are made of; the result."""

    async def maximise(self) -> F:
        """Walk to the maximum, or as far as the rounds go, and tell the result."""
        async for round_num in self._run.rounds(0 if self.finding else self._num_rounds):
            sums = await self.sums()
            where = self.iteration
            if where.rose(sums):
                self.iteration, arrived = where.half_back(), False
            else:
                arrived = self.step(sums)
            if arrived or round_num == self._num_rounds:
                self.finding = await self.finish(where.coefficients, sums)
                self._run.publish(self.finding)
                self._run.ends(self._arrival(arrived=arrived))
            await self._run.record(round_num, self.to_arrays())
            if arrived:
                break
        if self.finding is None:
            raise DataError("the job has no rounds left, and no coefficients; submit it again")
        return self.finding

    def resume(self, state: State) -> None:
        """Go on from a checkpoint."""
        self.iteration = Iteration.from_arrays(state)
        null = state.number("null")
        self.null = None if np.isnan(null) else null
        if "finding" in state:
            self.finding = self._kind.from_json(state.json("finding"))
        recorded = state.names("members")
        self._are_left(recorded, tuple(c for c in recorded if c in self.cohort.clients))

    def to_arrays(self) -> Mapping[str, Array]:
        """The state for a checkpoint."""
        null = np.nan if self.null is None else self.null
        found = {**self.iteration.to_arrays(), "members": names_array(self.members), "null": np.array([null])}
        return found if self.finding is None else {**found, "finding": json_array(self.finding.to_json())}

    async def ask(
        self, request: Request[R], refusing: Callable[[str, R], Iterable[str]] = lambda *_: ()
    ) -> Mapping[str, R]:
        """Replies of those of the members who answer; who does not is out of the problem.

        Args:
            request: What to ask.
            refusing: As of `Cohort.ask`.
        """
        replies = await self.cohort.ask(request, clients=self.members, everyone=True, refusing=refusing)
        self._are_left(self.members, tuple(replies))
        return replies

    async def ask_sums(
        self,
        request: Request[R],
        part_of: Callable[[R], Part],
        *,
        curved: bool = True,
        refusing: Callable[[str, R], Iterable[str]] = lambda *_: (),
    ) -> Mapping[str, R]:
        """Replies to a request for sums at a point; a client is out that told otherwise of the one before.

        Args:
            request: What to ask.
            part_of: The client's part of the likelihood in its reply.
            curved: Whether second derivatives differ from point to point.
            refusing: As of `Cohort.ask`.
        """

        def why(client: str, reply: R) -> Iterator[str]:
            yield from refusing(client, reply)
            before = self.parts.get(client)
            if before is not None and (words := contradiction(before, part_of(reply), curved=curved)):
                yield words

        replies = await self.ask(request, why)
        self.parts = {client: part_of(reply) for client, reply in replies.items()}
        return replies

    def weighted(self, replies: Mapping[str, R]) -> R:
        """The mean of replies over their rows."""
        rows = {client: float(getattr(reply, "num_rows", 0)) for client, reply in replies.items()}
        return self.cohort.weighted(replies, rows)

    def refuse_others(self, members: Members) -> None:
        """Refuse standard errors of other rows than those behind the coefficients.

        Raises:
            DataError: The members are others now.
        """
        lost = [f"{c} ({self.cohort.why_missing(c)})" for c in members if c not in self.members]
        if lost:
            raise DataError(
                f"a client was lost while standard errors were computed, {listed(lost, more=', ...')}, so they would "
                "be of other rows than the coefficients; submit the job again"
            )

    def note_few(self, num: int, what: str) -> None:
        """Tell of fewer rows of a kind than `ENOUGH` for each coefficient."""
        if num < ENOUGH * len(self.names):
            self._run.note(
                f"{num} {what} for {len(self.names)} coefficients, fewer than {ENOUGH} for each: estimates and "
                "standard errors lean on few rows; name fewer columns in data.features"
            )

    def note_far(self, what: str, figures: Mapping[str, float]) -> None:
        """Tell of the client whose figure is far beyond all others': it decides that of all rows.

        Args:
            what: It is, in words, e.g. `a deviance by row`.
            figures: By client, none below 0.
        """
        top = max(figures, key=lambda client: figures[client], default="")
        beside = max((figure for client, figure in figures.items() if client != top), default=0.0)
        if beside > 0 and figures[top] > FAR * beside:
            self._run.note(
                f"{top} states {what} of {figures[top]:.3g}, {figures[top] / beside:.2g} times that of any other "
                f"client, and it counts: rows far out are there, or a fault; {CHECK_UNITS}"
            )

    def _are_left(self, before: Members, now: Members) -> None:
        self.members = self._run.without_lost(before, now)
        if self.members != before:
            self.iteration, self.null = self.iteration.anew(), None

    def _arrival(self, *, arrived: bool) -> Arrival:
        distance = self.iteration.distance
        told = f"the maximum of the likelihood is about {distance:.2g} standard errors away"
        if arrived:
            return Arrival(told, True, distance, _MEASURE)
        return Arrival(
            f"all {self._num_rounds} rounds are used up, and {told}; raise method.rounds", False, distance, _MEASURE
        )
