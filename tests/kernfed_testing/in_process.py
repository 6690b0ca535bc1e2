"""Jobs on clients in this process: made-up data, faulty clients, runs that stop and go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent, RoundMetrics
from kernfed.federation.exchange import Call, Exchange, Fault
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.base import Reply, Request
from kernfed.federation.quorum import Quorum
from kernfed.jobs.held_to import HeldTo
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed_client.data.local_job import LocalJob
from kernfed_client.steps.registry import STEPS
from kernfed_client.sums.site import OpenSums, Sums, SumSeats
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.journal import Checkpoint, MemoryJournal
from kernfed_server.jobs.run import Run
from kernfed_simulation.federation import Rows, from_rows

Floats = npt.NDArray[np.float64]

JOB_ID = "test-job"


def make_job(
    method: str,
    *,
    task: str = "regression",
    num_columns: int = 3,
    frequencies: int | None = 40,
    features: str = "",
    data: str = "",
    cohort: str = "",
    top: str = "",
    **settings: Any,
) -> JobFile:
    """Write and parse a job file; the text arguments are lines for its tables.

    Without `frequencies` and `features` it has no feature map; an exact kernel has no frequencies.
    """
    columns = ", ".join(f'"x{i}"' for i in range(num_columns))
    values = {key: str(value).lower() if isinstance(value, bool) else repr(value) for key, value in settings.items()}
    lines = "\n".join(f"{key} = {value}".replace("'", '"') for key, value in values.items())
    if frequencies is not None and '"linear"' not in features and '"polynomial2"' not in features:
        features = f"num_frequencies = {frequencies}\n{features}"
    return parse_job(
        f"""
        name = "test"
        seed = 5
        {top}
        [method]
        name = "{method}"
        {lines}
        [cohort]
        {cohort}
        [data]
        task = "{task}"
        target = "y"
        features = [{columns}]
        {data}
        {f"[features]{chr(10)}{features}" if features else ""}
        """
    )


INDEPENDENT: dict[str, Any] = {
    "data": "standardise = false",
    "features": 'lengthscale = 1.5\nintercept = false\norigin = "zero"',
}
"""Settings under which a client's preparation says nothing about the others' rows."""


FOUR = {"ant": 300, "bee": 260, "cat": 340, "dog": 280}
"""Rows of four clients, more than features."""


def regression_rows(
    sizes: Mapping[str, int], *, shift: float = 0.0, num_columns: int = 3, seed: int = 1
) -> dict[str, Rows]:
    """Rows of a smooth function with noise; `shift` moves each client's inputs away from the others'."""
    random = np.random.default_rng(seed)
    rows = {}
    for i, (name, size) in enumerate(sizes.items()):
        x = random.normal(size=(size + 10, num_columns)) + shift * i
        y = np.sin(x).sum(axis=1) + 0.1 * random.normal(size=size + 10)
        rows[name] = Rows(x[:size], y[:size], x[size:], y[size:])
    return rows


def label_skewed_rows(num_clients: int = 4, size: int = 60, num_columns: int = 6, seed: int = 2) -> dict[str, Rows]:
    """Clients that each have rows of one class and a few of the next: three classes."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(3, num_columns))
    rows = {}
    for i in range(num_clients):
        y = np.where(np.arange(size + 12) % 12 == 0, (i + 1) % 3, i % 3)
        x = centres[y] + random.normal(size=(size + 12, num_columns))
        rows[f"site-{i}"] = Rows(x[:size], y[:size], x[size:], y[size:])
    return rows


R = TypeVar("R", bound=Reply)


class ReversedExchange(Exchange):
    """Hands replies on in the opposite order, as if the last client had answered first."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self.masks = exchange, exchange.masks

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """See `kernfed.federation.exchange.Exchange.ask`."""
        outcomes = await self._exchange.ask(call)
        return dict(reversed(list(outcomes.items())))


class AwayExchange(Exchange):
    """Clients that do not answer from a round on, or in some rounds."""

    def __init__(self, exchange: Exchange, away: Mapping[str, int | range]) -> None:
        self._exchange, self.masks = exchange, exchange.masks
        self._away = away

    async def ask(self, call: Call[R]) -> Mapping[str, R | Fault]:
        """See `kernfed.federation.exchange.Exchange.ask`."""
        there = tuple(c for c in call.clients if not self._is_away(c, call.round_num))
        own = None if call.own is None else {c: call.own[c] for c in there}
        return await self._exchange.ask(replace(call, clients=there, own=own))

    def _is_away(self, client: str, round_num: int) -> bool:
        rounds = self._away.get(client, range(0))
        return round_num in rounds if isinstance(rounds, range) else round_num >= rounds


class StopRunError(Exception):
    """A coordinator that is killed."""


@dataclass
class RecordingJournal(MemoryJournal):
    """Keeps every checkpoint; may be killed before a checkpoint of a round."""

    stop_before: int | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """Of closed rounds."""
    before: dict[int, Checkpoint] = field(default_factory=dict)
    """By round: the last one before it was closed, from which a run goes on that is stopped there."""

    async def checkpoint(self, checkpoint: Checkpoint) -> None:
        """See `kernfed_server.jobs.run.Journal.checkpoint`."""
        if checkpoint.closes and checkpoint.round_num == self.stop_before:
            raise StopRunError
        copied = {name: np.array(array, copy=True) for name, array in checkpoint.state.items()}
        kept = replace(checkpoint, state=copied)
        if checkpoint.closes:
            self.checkpoints.append(kept)
            if self.last is not None:
                self.before[checkpoint.round_num] = self.last
        await super().checkpoint(kept)


Tamper = Callable[[Reply], Reply]


@dataclass(frozen=True)
class Bench:
    """Clients and how they misbehave."""

    jobs: Mapping[str, LocalJob]
    tamper: Mapping[tuple[str, str], Tamper] = field(default_factory=dict)
    """By client and step: what becomes of the reply."""
    from_round: int = 0
    """Rounds before this one are answered honestly."""
    away: Mapping[str, int | range] = field(default_factory=dict)
    """Client to the first round in which it does not answer, 0: not even before round 1; or to all such rounds."""
    sums: Callable[[str], Sums] | None = None
    """A client's secure sums under masks, by its name; None: terms are summed as they are."""

    def cohort(
        self, job: JobFile, observe: Callable[[JobEvent], None], *, reverse: bool = False, held: bool = True
    ) -> Cohort:
        """The job's cohort; `held`: each request must be one that clients answer who hold the job's signed file."""
        now, signed = 0, HeldTo(job)

        def watched(event: JobEvent) -> None:
            nonlocal now
            now = event.round_num
            observe(event)

        def guarded(step: Callable[[Any, Any], Reply]) -> Callable[[Any, Any], Reply]:
            def run(local: LocalJob, request: Request[Any]) -> Reply:
                assert not (held and (other := signed.contradiction(request, now))), other
                reply = step(local, request)
                change = self.tamper.get((local.client, request.step))
                return change(reply) if change and now >= self.from_round else reply

            return run

        for name, local in self.jobs.items():
            local.memory(SumSeats).sums = OpenSums() if self.sums is None else self.sums(name)
        steps = {request: guarded(step) for request, step in STEPS.items()}
        honest: Exchange = InProcessExchange(steps, dict(self.jobs), masks=self.sums is not None)
        exchange: Exchange = ReversedExchange(honest) if reverse else honest
        if self.away:
            exchange = AwayExchange(exchange, self.away)
        section = job.cohort
        return Cohort(
            exchange,
            self.jobs,
            job_id=JOB_ID,
            quorum=Quorum(section.min_clients, section.min_fraction),
            float_bits=64 if job.precision == "float64" else 32,
            observe=watched,
        )

    def run(
        self,
        job: JobFile,
        *,
        stop_before: int | None = None,
        resumed: Checkpoint | None = None,
        reverse: bool = False,
    ) -> Outcome:
        """Run the job; errors are raised."""
        journal = RecordingJournal(stop_before=stop_before)
        cohort = self.cohort(job, journal.event, reverse=reverse, held=resumed is None)
        model: Any = None
        stopped = False
        try:
            model = asyncio.run(execute(job, cohort, Run(cohort, journal, resumed, job.evaluate_every)))
        except StopRunError:
            stopped = True
        return Outcome(model, journal, cohort, stopped)


@dataclass(frozen=True)
class Outcome:
    """What a run left."""

    model: Any
    """A GlobalModel, of a method that leaves one; None of others, and of a run that was stopped."""
    journal: RecordingJournal
    cohort: Cohort
    stopped: bool

    @property
    def weights(self) -> Floats:
        """The model's weights."""
        assert self.model is not None
        weights: Floats = self.model.weights
        return weights

    @property
    def notes(self) -> list[str]:
        """What the operator was told."""
        return [e.message for e in self.journal.events if e.kind is EventKind.NOTE]

    @property
    def metrics(self) -> list[RoundMetrics]:
        """Of the rounds, in order."""
        return [e.metrics for e in self.journal.events if e.kind is EventKind.ROUND_CLOSED and e.metrics is not None]


def bench(rows: Mapping[str, Rows], state: Path, classes: tuple[str, ...] = (), **kwargs: Any) -> Bench:
    """Clients with rows in memory."""
    return Bench(from_rows(rows, classes, state), **kwargs)


def with_nan(reply: Reply) -> Reply:
    """The reply with NaN in its first array."""
    name = next(n for n in reply.__dataclass_fields__ if isinstance(getattr(reply, n), np.ndarray))
    array = np.array(getattr(reply, name), copy=True)
    array.reshape(-1)[0] = np.nan
    return replace(reply, **{name: array})


def with_wrong_shape(reply: Reply) -> Reply:
    """The reply with its first array cut short."""
    name = next(n for n in reply.__dataclass_fields__ if isinstance(getattr(reply, n), np.ndarray))
    return replace(reply, **{name: getattr(reply, name)[:-1]})


def with_rows(num_rows: int) -> Tamper:
    """Replies that claim another number of rows."""

    def change(reply: Reply) -> Reply:
        changed: dict[str, Any] = {"num_rows": num_rows}
        return replace(reply, **changed)

    return change


def scaled(factor: float) -> Tamper:
    """Replies whose arrays are so many times as large."""

    def change(reply: Reply) -> Reply:
        arrays: dict[str, Any] = {
            f.name: getattr(reply, f.name) * factor
            for f in fields(reply)
            if isinstance(getattr(reply, f.name), np.ndarray)
        }
        return replace(reply, **arrays)

    return change


def stating(**values: Any) -> Tamper:
    """Replies with other numbers in these fields."""
    return lambda reply: replace(reply, **values)
