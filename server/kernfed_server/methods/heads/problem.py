"""Shared parts of all methods on a head at the coordinator: opening it at the clients, means over them, evaluation."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from kernfed import rng
from kernfed.arrays import Array
from kernfed.errors import ConfigError, InvalidReplyError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics, Scores
from kernfed.federation.messages.base import R, Request
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.sampling import sample_clients
from kernfed.maths.tasks import TASKS
from kernfed.methods.heads.excess import excess
from kernfed.methods.heads.finding import Course, HeadFinding
from kernfed.methods.heads.losses import FACTS, start_scores
from kernfed.methods.heads.messages import (
    EvaluateHeadRequest,
    HeadGradientRequest,
    HeadLoss,
    HeadOpened,
    OpenHeadRequest,
)
from kernfed.methods.heads.settings import (
    FedAvgSettings,
    FedNewSettings,
    FedProxSettings,
    FedSophiaSettings,
    NewtonSettings,
)
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.jobs.arrival import AT_REST, Arrival
from kernfed_server.jobs.evaluation import measured, measured_once
from kernfed_server.jobs.from_all import asked_of_all
from kernfed_server.jobs.run import Members, Run
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import State

HeadSettings = FedAvgSettings | FedNewSettings | FedProxSettings | FedSophiaSettings | NewtonSettings
_FREE_BIAS = "free_bias"
"""In checkpoints; one without is of a version that penalised every bias."""
_TELL_EVERY = 25
"""Measured rounds between reports of the course; the whole of it is told each time."""


@dataclass
class HeadProblem:
    """A head's objective at the clients, and what has been asked of them. D features with the bias, C outputs."""

    setup: Setup
    ridge: float
    loss: HeadLoss
    cohort: Cohort
    run: Run
    rows: Mapping[str, int]
    """Rows behind each client's objective."""
    validation_rows: Mapping[str, int]
    """The number of these that rounds of local training keep apart."""
    memory_bytes: int
    """Memory that a solver may take at the client that has the least."""
    finding: HeadFinding
    """For the job's record."""
    choose_ridge: bool = False
    """Whether clients choose the ridge of their own heads, as the job chooses that of the global one."""
    free_bias: bool = False
    """Whether the bias is in no ridge, and weights are changes of a head that predicts the targets' pooled mean."""
    noted_cut: bool = False
    """Whether the operator knows that clients' solves are cut short."""
    uploads: float = 0.0
    """Replies asked for so far, per client."""
    started: float = field(default_factory=time.monotonic)
    """When this life of the run began."""

    @property
    def shape(self) -> tuple[int, int]:
        """(D, C)."""
        return self.setup.num_features + int(self.setup.intercept), self.setup.num_outputs

    def whole(self, weights: Array) -> Array:
        """The weights of the head itself, shape (D, C): those of a free bias are changes."""
        if not self.free_bias:
            return weights
        whole = np.array(weights, dtype=np.float64)
        whole[-1] += start_scores(self.loss, self.setup.agreed.target_mean)
        return whole

    @property
    def seed(self) -> int:
        """Of the job."""
        return self.setup.schema.seed

    def round_seed(self, method: str, round_num: int) -> int:
        """A seed for what clients draw in a round."""
        return rng.seed(self.seed, method, str(round_num))

    async def ask(self, request: Request[R], members: Members, *, everyone: bool = False) -> dict[str, R]:
        """Replies of some of the clients, by name; the quorum counts among them where they are not all."""
        self.uploads += len(members) / max(len(self.rows), 1)
        drawn = set(members) != set(self.cohort.clients)
        return await self.cohort.ask(request, clients=members, everyone=everyone, drawn=drawn)

    async def ask_each(self, requests: Mapping[str, Request[R]]) -> dict[str, R]:
        """Replies to a request of each client's own, by name."""
        self.uploads += len(requests) / max(len(self.rows), 1)
        return await self.cohort.ask_each(requests, drawn=set(requests) != set(self.cohort.clients))

    def weighted(self, replies: Mapping[str, R]) -> R:
        """Mean of replies, weighted by the rows behind each client's objective."""
        return self.cohort.weighted(replies, self.rows)

    def weighted_apart(self, replies: Mapping[str, R]) -> R:
        """Mean of replies, weighted by the rows that are left where some are kept apart."""
        left = {client: self.rows[client] - self.validation_rows[client] for client in replies}
        return self.cohort.weighted(replies, left)

    def share_apart(self, clients: Members) -> float:
        """Share of the rows of some of the clients that are kept apart."""
        apart, rows = (sum(of[client] for client in clients) for of in (self.validation_rows, self.rows))
        return apart / max(rows, 1)

    def validation_mean(self, numbers: Mapping[str, float]) -> float:
        """Mean of a number of rows kept apart, by client, weighted by these rows; 0 where there are none."""
        rows = {client: self.validation_rows[client] for client in numbers}
        return sum(rows[client] * numbers[client] for client in sorted(numbers)) / max(sum(rows.values()), 1)

    async def mean(self, request: Request[R], members: Members, *, everyone: bool = False) -> tuple[R, Members]:
        """Mean over those of the members who answered, and who they are."""
        replies = await self.ask(request, members, everyone=everyone)
        return await asyncio.to_thread(self.weighted, replies), tuple(replies)

    def sampled(self, fraction: float, round_num: int) -> Members:
        """Clients of a round, drawn by the job's seed."""
        return sample_clients(self.cohort.clients, fraction, self.seed, round_num)

    def shifts(self, members: Members, fraction: float) -> Iterator[Members]:
        """The members in groups of this share of them, in the order of their names."""
        size = max(1, math.ceil(fraction * len(members) - 1e-9))
        for start in range(0, len(members), size):
            yield members[start : start + size]

    async def close(
        self,
        round_num: int,
        rounds: int,
        state: Mapping[str, Array],
        weights: Array,
        training: Scores,
        *,
        last: bool = False,
    ) -> None:
        """Measure the model where it is due, and record the round."""
        training = {**training, "uploads": self.uploads}
        metrics = RoundMetrics(training=training)
        if last or self.run.evaluates(round_num, rounds):
            metrics = await self.evaluate(weights, training)
            self._tell(round_num, metrics.pooled.get("global", {}), last=last or round_num == rounds)
        kept = {**state, "uploads": np.array([self.uploads]), _FREE_BIAS: np.array([self.free_bias], dtype=np.uint8)}
        await self.run.record(round_num, kept, metrics)

    def _tell(self, round_num: int, scores: Scores, *, last: bool) -> None:
        """Publish the course so far: a metric by seconds, of this life of the run."""
        metric = TASKS[self.setup.schema.task].main_metric
        if metric not in scores:
            return
        seconds = round(time.monotonic() - self.started, 3)
        course = (self.finding.course or Course(metric)).then(round_num, seconds, scores[metric])
        self.finding = replace(self.finding, course=course)
        if last or len(course.rounds) % _TELL_EVERY == 0:
            self.run.publish(self.finding)

    def ends(self, arrival: Arrival) -> None:
        """Say how the job ended, before its last round is recorded."""
        self.run.ends(arrival)
        self.finding = replace(self.finding, arrived=arrival.arrived, distance=arrival.distance)
        self.run.publish(self.finding)

    async def moved(self, round_num: int, rounds: int, before: Array, after: Array, *, whole: bool) -> None:
        """Note a round's movement, of a method that knows no gradient at its end, and after the last one how it ended.

        It ended by the pooled gradient at its last weights; where not all clients tell theirs, by movements.

        Args:
            round_num: The round.
            rounds: All of them.
            before: W before it.
            after: W after it.
            whole: Whether each round has all clients and all their rows.
        """
        self.run.moved(before, after)
        if round_num == rounds:
            self.ends(await self._judged(after, self.run.settled(rounds, whole=whole)))

    async def _judged(self, weights: Array, settled: Arrival) -> Arrival:
        request = HeadGradientRequest(ridge=self.ridge, leave_out=False, weights=weights)
        replies = await asked_of_all(self.cohort, self.run, request, "nobody can say how far the least pooled loss is")
        if not replies:
            return settled
        mean = await asyncio.to_thread(self.weighted, replies)
        told = f"the norm of the pooled gradient is {np.linalg.norm(mean.gradient):.2g}"
        bias = self.setup.agreed.target_mean if self.free_bias else None
        most = math.inf
        if self.ridge > 0 and mean.loss > 0:
            most = excess(mean.gradient, self.ridge, self.loss, bias) / mean.loss
        if most >= 1.0:  # no loss is below 0: nothing new
            told += ", which tells no distance with so small a ridge"
            return replace(settled, words=f"{settled.words}; {told}", arrived=settled.arrived and None)
        told += f", so the pooled loss is at most {100 * most:.2g} % above its least"
        measure = "part of the pooled loss that is above its least, at most"
        if most <= AT_REST:
            return Arrival(told, True, most, measure)
        return Arrival(f"{settled.words}; {told}", settled.arrived and None, most, measure)

    async def evaluate(self, weights: Array, training: Scores) -> RoundMetrics:
        """Measure a head at every client; their own heads (`local`) are carried on from before round 1."""
        baseline = self.setup.baseline
        if not baseline.clients:  # nobody could be measured before round 1, which was noted then
            return RoundMetrics(training=training)
        request = EvaluateHeadRequest(weights=weights, ridge=self.ridge, include_global=True, include_local=False)
        found = await measured(self.cohort.ask(request), self.setup.schema.task, self.run)
        self.run.came_to({"weights": weights}, found)
        return replace(baseline.merged(found), training=training)

    async def left(self, of: State) -> Array:
        """The head of a round that was measured, for a run that diverges later."""
        return self.whole(of["weights"])

    async def measure_left(self, of: State) -> RoundMetrics:
        """Its metrics."""
        return await self.evaluate(of["weights"], {"uploads": self.uploads})

    async def measure_local(self) -> RoundMetrics:
        """Measure the head that every client trains alone."""
        nothing = np.zeros(self.shape)
        requests = {
            client: EvaluateHeadRequest(
                weights=nothing,
                ridge=self.setup.own_ridge.get(client, self.ridge),
                include_global=False,
                include_local=True,
                choose_ridge=self.choose_ridge,
                local_shared=self.setup.local_shared,
            )
            for client in self.cohort.clients
        }
        return await measured(self.cohort.ask_each(requests), self.setup.schema.task, self.run)


def head_loss(name: str, task: LearningTask) -> HeadLoss:
    """The loss that a job's `loss` stands for.

    Raises:
        ConfigError: Cross-entropy of numbers.
    """
    if name == "squared":
        return HeadLoss.SQUARED
    if not TASKS[task].has_classes:
        raise ConfigError('method.loss = "cross-entropy" needs classes, but the task is regression; use "squared"')
    return next(loss for loss, facts in FACTS.items() if facts.link is TASKS[task].link)


async def open_head(
    setup: Setup,
    settings: HeadSettings,
    cohort: Cohort,
    run: Run,
    *,
    validation_fraction: float = 0.0,
    choose_ridge: bool = False,
) -> HeadProblem:
    """Open a head at every client, and measure what each can do alone.

    Raises:
        JobError: A client cannot; one line each.
        ConfigError: The loss does not fit the task, or there is no bias to penalise.
    """
    kind, ridge = head_loss(settings.loss, setup.schema.task), ridge_of(settings)
    if settings.penalise_bias and not setup.intercept:
        raise ConfigError("method.penalise_bias: features.intercept = false leaves no bias; remove the key")
    free_bias = setup.intercept and not settings.penalise_bias
    if run.resumed is not None:
        free_bias = _FREE_BIAS in run.resumed and bool(run.resumed[_FREE_BIAS][0])
    gate = Gate(cohort, run, strict=setup.strict)
    opened = await gate.once(
        "head",
        OpenHeadRequest(
            loss=kind,
            bias=setup.intercept,
            validation_fraction=validation_fraction,
            seed=setup.schema.seed,
            num_features=setup.num_features + int(setup.intercept),
            num_outputs=setup.num_outputs,
            free_bias=free_bias,
        ),
        lambda _, reply: _check_opened(reply, validation_fraction, free_bias=free_bias),
    )
    rows = {client: reply.num_rows for client, reply in opened.items()}
    problem = HeadProblem(
        setup=setup,
        ridge=ridge,
        loss=kind,
        cohort=cohort,
        run=run,
        rows=rows,
        validation_rows={client: reply.num_validation_rows for client, reply in opened.items()},
        memory_bytes=min(reply.memory_bytes for reply in opened.values()),
        finding=HeadFinding(
            method=settings.name,
            loss=kind.value,
            features=setup.num_features + int(setup.intercept),
            outputs=setup.num_outputs,
            rows=max(rows.values()),
            ridge=ridge,
        ),
        choose_ridge=choose_ridge,
        free_bias=free_bias,
    )
    problem.setup = replace(setup, baseline=await measured_once(run, "local heads", problem.measure_local))
    problem.started = time.monotonic()
    run.sound.leave_by(problem.left, problem.measure_left)
    if run.resumed is not None and "uploads" in run.resumed:
        problem.uploads = run.resumed.number("uploads")
    return problem


def _check_opened(reply: HeadOpened, validation_fraction: float, *, free_bias: bool) -> None:
    if reply.free_bias is not free_bias:
        raise InvalidReplyError(
            "trains another kind of bias than was asked for; install the coordinator's version of kernfed there, or "
            "set method.penalise_bias = true"
        )
    apart = int(validation_fraction * reply.num_rows)
    kept = reply.num_validation_rows
    if not 0 <= kept <= apart or reply.num_fit_rows != reply.num_rows - kept:
        raise InvalidReplyError(
            f"keeps {reply.num_validation_rows} rows apart, trains on {reply.num_fit_rows}: of {reply.num_rows} rows "
            f"it should be at most {apart} and the others"
        )
