"""A run of a job as its workflow sees it: rounds that can be resumed, records, notes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import ConfigError, DataError, QuorumNotMetError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import EventKind, JobEvent, RoundMetrics
from kernfed.jobs.former import WEIGHTS, Former
from kernfed.maths.settling import relative_movement
from kernfed.methods.finding import Finding, ResolvedFinding
from kernfed.methods.shares import SharesFinding
from kernfed.metric_names import ROW_SHARE
from kernfed_server.jobs.arrival import ROUNDING, Arrival, settling
from kernfed_server.jobs.journal import Checkpoint, Journal, PartJournal
from kernfed_server.jobs.sound import Sound
from kernfed_server.jobs.start.agreed import AgreedValues
from kernfed_server.jobs.start.agreement import Agreement
from kernfed_server.jobs.state import Arrays, State, json_array

R = TypeVar("R")

Members = tuple[str, ...]
"""The clients whose rows an objective is made of, sorted."""

_OWN = "run."
"""Beginning of the names of what a run itself keeps in checkpoints."""
RULES = 5
"""Of what a run does by default: 0 dealt copies of a row to training and test rows one by one; below 2 a ridge that the
job does not name was 1e-3, and classes were drawn for in their order in the job; below 3 the job's seed drew the rows
that are held out; below 4 their content in the job's columns decided; below 5 rows kept apart chose no
ridge where the job did not say so."""
_MOVEMENTS = 6
"""Rounds whose movements are remembered: as many as tell a contraction."""
_OF_ONE_JOB = ("clients", "arrival", "measured", "sound")
"""What another job that goes on from this one does not take over."""
_RULE = f"{_OWN}rule."
"""The same of numbers that stand for rules of the settings."""


class Model(Protocol):
    """Something that a job leaves and that can be saved."""

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write its files to a folder; `durable` is False where the caller syncs the folder."""
        ...


class Run:
    """One job's run: what a workflow uses beside its cohort."""

    def __init__(self, cohort: Cohort, journal: Journal, resumed: Checkpoint | None = None, evaluate_every: int = 1):
        self._cohort = cohort
        self._journal = journal
        self._resumed = resumed
        self._evaluate_every = evaluate_every
        self._round = resumed.round_num if resumed else 0
        self._kept: Callable[[], Model | None] | None = None
        self._told: set[str] = set()
        self.measured = RoundMetrics()
        """Of the last round that was measured."""
        self.resolved: Mapping[str, float] = {}
        """Numbers that stand for rules of the method's settings, by key."""
        self.sound: Sound[Array | Model | None] = Sound()
        self.arrival: Arrival | None = None
        """What the workflow said of its end, so far."""
        self.rules = RULES if resumed is None else 0
        """Those under which it began; one that began under earlier rules goes on under them."""
        self._movements: list[float] = []
        self.agreed = AgreedValues(resumed.state if resumed else None)
        """What the clients agreed on before round 1, of which nobody agrees anew."""
        self._whole: Run | None = None
        """The run within which this one is; see `part`."""
        self.former = ""
        """Id of the job that this one goes on from; empty: none."""
        self._first: Array | None = None
        self._recorded = False
        """Whether this life of the run wrote a checkpoint of a round."""
        self.holds_state = False
        """Whether the state of a round is held, so that what is agreed on behind it is written at once."""
        self._last: Arrays | None = None
        if resumed:
            self._recall(State(resumed.state).part(_OWN))

    def go_on_from(self, former: Former) -> None:
        """Begin behind the last round of another job, with its state and what its clients agreed on.

        A run that has a checkpoint of its own goes on from that. Who took part there, and how it ended, does not count.
        """
        self.former = former.job_id
        if self._resumed is not None:
            return
        agreement = Agreement.of_checkpoint(former.arrays)
        if agreement is not None and (fault := agreement.fault()):
            raise DataError(f"start_from: {former.origin}: {fault}; fetch the job's artifacts again, or begin anew")
        self.note(f"goes on from {former.origin}, behind its round {former.round_num}")
        state = {name: array for name, array in former.arrays.items() if name.removeprefix(_OWN) not in _OF_ONE_JOB}
        self._resumed, self._round = Checkpoint(former.round_num, state), former.round_num
        self.rules = 0
        self._recall(State(state).part(_OWN))
        self.agreed = AgreedValues(state)
        if self.agreed.agreement is not None:
            self.agreed.agree(replace(self.agreed.agreement, num_rows={}, descriptions={}))

    def begin_with(self, former: Former) -> None:
        """Begin with the weights of another job's model, at the first round.

        Raises:
            DataError: It left none.
        """
        self.former, self._first = former.job_id, former.arrays.get(WEIGHTS)
        if self._first is None:
            raise DataError(f"start_from: {former.origin} left no weights; name another job")
        if self._resumed is None:
            self.note(f"begins with the model of {former.origin}, behind its round {former.round_num}")

    def first_weights(self, shape: tuple[int, int]) -> Array:
        """Weights before round 1: those of the job that this one begins with, else zeros.

        Raises:
            ConfigError: They are of another shape.
        """
        if self._first is None:
            return np.zeros(shape)
        if self._first.shape != shape:
            raise ConfigError(
                f"start_from: the weights of job {self.former} are of shape {self._first.shape}, and this job's are of "
                f"shape {shape}; give features, classes and method.loss as that job has them"
            )
        return self._first

    @property
    def has_first(self) -> bool:
        """Whether there are weights of another job to begin with."""
        return self._first is not None

    @property
    def round_num(self) -> int:
        """The last closed round; 0 before the first."""
        return self._round

    @property
    def resumed(self) -> State | None:
        """State after the last finished round of an earlier life of this run; None: no round was."""
        if self._resumed is None or not self._resumed.round_num:
            return None
        return State({name: a for name, a in self._resumed.state.items() if not name.startswith(_OWN)})

    def resolve(self, numbers: Mapping[str, float]) -> None:
        """Fix numbers that stand for rules of the settings: they go into every checkpoint and into the job's record."""
        self.resolved = dict(numbers)
        self.publish(ResolvedFinding(dict(numbers)))

    def resolved_before(self) -> dict[str, float]:
        """What an earlier life of this run resolved."""
        state = self._resumed.state if self._resumed else {}
        return {n.removeprefix(_RULE): float(a[0]) for n, a in state.items() if n.startswith(_RULE)}

    async def rounds(self, last: int) -> AsyncIterator[int]:
        """Round numbers still to do; entering one opens it. What clients agreed on is on disk before the first."""
        await (self._whole or self).write_agreed()
        for round_num in range(self._round + 1, last + 1):
            self._cohort.enter_round(round_num)
            self._journal.event(JobEvent(EventKind.ROUND_OPENED, round_num))
            yield round_num

    def part(
        self, keep: Arrays, resumed: State | None, measured: Callable[[RoundMetrics], RoundMetrics] = lambda m: m
    ) -> Run:
        """Open a run within this one, for a workflow that uses another one: its rounds follow those closed so far.

        Args:
            keep: Goes into every checkpoint beside the other workflow's state, whose names begin with `part.` there.
            resumed: State from which the other workflow goes on, without that beginning; None: it starts.
            measured: The metrics to record for those of its rounds.
        """
        journal = PartJournal(self._told_by_part, self._write, keep, measured)
        checkpoint = None if resumed is None else Checkpoint(self._round, resumed)
        inner = Run(self._cohort, journal, checkpoint, self._evaluate_every)
        inner._round, inner._whole, inner.agreed, inner.sound = self._round, self, self.agreed, self.sound
        return inner

    async def write_agreed(self) -> None:
        """Keep what was agreed on since the last checkpoint, with the state of then."""
        state = self._last if self._recorded else {} if self._resumed is None else self._resumed.state
        if not self.agreed.unwritten or state is None:  # the next round's checkpoint takes it along
            return
        await self._journal.checkpoint(Checkpoint(self._round, self._whole_state(state), closes=False))
        self.agreed.unwritten = False

    def evaluates(self, round_num: int, last: int) -> bool:
        """Whether this round's model is to be measured at the clients."""
        return round_num == last or round_num % self._evaluate_every == 0

    async def record(self, round_num: int, state: Arrays, metrics: RoundMetrics | None = None) -> None:
        """Close a round: its state is on disk before the next one opens."""
        # The event first: the journal stores what was noted together with the checkpoint, so no metrics are lost.
        self._closed(round_num, metrics)
        await self._write(round_num, state)

    async def _write(self, round_num: int, state: Arrays) -> None:
        await self._journal.checkpoint(Checkpoint(round_num, self._whole_state(state)))
        self._round, self._recorded = round_num, True
        self._last = state if self.holds_state else None

    def _told_by_part(self, event: JobEvent) -> None:
        if event.metrics is not None and event.metrics.pooled:
            self.measured = event.metrics
        self._journal.event(event)

    def close(self, round_num: int, state: Arrays, metrics: RoundMetrics | None = None) -> Awaitable[None]:
        """Close a round whose state goes to disk while the next one is under way.

        For methods whose clients can fall back two rounds: a coordinator that dies meanwhile does both again.

        Args:
            round_num: The round.
            state: After it; not to be changed any more.
            metrics: Of the round.

        Returns:
            What writes the state; to be awaited before the next round is closed.
        """
        self._closed(round_num, metrics)
        self._round, self._recorded = round_num, True
        return self._journal.checkpoint(Checkpoint(round_num, self._whole_state(state)))

    def _closed(self, round_num: int, metrics: RoundMetrics | None) -> None:
        """Tell a round's metrics, with the rows behind it."""
        self.tell_loudest()
        if metrics is not None and metrics.pooled:
            self.measured = metrics
        told, behind = metrics or RoundMetrics(), self._cohort.row_share
        if behind is not None:
            told = replace(told, training={**told.training, ROW_SHARE: behind})
        self._journal.event(JobEvent(EventKind.ROUND_CLOSED, round_num, metrics=told))

    def moved(self, before: Array, after: Array) -> None:
        """Note by which part of its size this round moved what is learned."""
        self._movements = [*self._movements[1 - _MOVEMENTS :], relative_movement(before, after)]

    def came_to(self, arrays: Arrays, metrics: RoundMetrics) -> None:
        """Tell what the open round came to, where it was measured; see `Sound.tell`."""
        self.sound.tell(self._round + 1, arrays, metrics)

    def ends(self, arrival: Arrival) -> None:
        """Say how the job ended; best before its last round is recorded, which then keeps it through a crash."""
        self.arrival = arrival

    def settled(self, rounds: int, *, whole: bool, what: str = "the weights", limit: str = "") -> Arrival:
        """How a job ended that runs all its rounds, by how far the last ones moved; a round at least.

        Args:
            rounds: All of them.
            whole: Whether each round had all clients and all their rows.
            what: Moves.
            limit: What the limit is, in words, where that is not what the method's name promises.
        """
        rounding = max(ROUNDING, 4.0 * self._cohort.float_epsilon)
        return settling(self._movements, rounds, whole=whole, what=what, rounding=rounding, limit=limit)

    def went_back(self, metrics: RoundMetrics) -> None:
        """Close the round in which the run diverged with the metrics of the model that the job leaves."""
        self.measured = metrics
        self._journal.event(JobEvent(EventKind.ROUND_CLOSED, self._round + 1, metrics=metrics))

    def _whole_state(self, state: Arrays) -> Arrays:
        """A workflow's state, and what a later life of the run has to know of this one."""
        own = {f"{_OWN}rules": np.array([self.rules])}
        own |= {_RULE + key: np.array([number]) for key, number in self.resolved.items()}
        if self._whole is None:
            own |= {f"{_OWN}clients": json_array(self._cohort.book), **self.agreed.to_arrays()}
            own |= {_OWN + name: array for name, array in self.sound.to_arrays(state).items()}
        if self._movements:
            own[f"{_OWN}movements"] = np.array(self._movements)
        if self.arrival is not None:
            own[f"{_OWN}arrival"] = json_array(self.arrival.to_json())
        if self.measured.pooled:
            own[f"{_OWN}measured"] = json_array(asdict(self.measured))
        return {**state, **own}

    def _recall(self, own: State) -> None:
        if "rules" in own:
            self.rules = int(own.number("rules"))
        if "clients" in own:
            self._cohort.reopen(own.json("clients"))
        if "movements" in own:
            self._movements = own["movements"].tolist()
        if "arrival" in own:
            self.arrival = Arrival(**own.json("arrival"))
        if "measured" in own:
            self.measured = RoundMetrics(**own.json("measured"))
        if self._resumed is not None:
            self.sound.recall(own, self._resumed.state)

    def keep(self, model: Callable[[], Model | None]) -> None:
        """Say how the model of now is made; called once, for a job that is cancelled, or fails but does not diverge."""
        self._kept = model

    @property
    def kept(self) -> Model | None:
        """The model of a job that was cancelled or failed; None where its method keeps none."""
        return self._kept() if self._kept is not None else None

    def publish(self, finding: Finding) -> None:
        """Keep a result of the method for the artifacts (`findings.json`) and the report.

        A later one of the same name takes its place. The report shows those that `kernfed.report.sections` knows.
        """
        event = JobEvent(EventKind.FINDING, self._round, message=finding.name, finding=finding.to_json())
        self._journal.event(event)

    def counted(self, weights: Mapping[str, float]) -> Mapping[str, float]:
        """See `Cohort.counted`."""
        return self._cohort.counted(weights)

    def weighs(self, weights: Mapping[str, float], by: str, rows: Mapping[str, int] | None = None) -> None:
        """Say by what clients count in the method's means, for the record, and note who outweighs the others.

        Args:
            weights: Of each client, before `cohort.max_share`; empty where the method forms no mean.
            by: What they are, in words; empty as well.
            rows: Of each client; unset: the training rows that it stated.
        """
        known = self._cohort.num_rows if rows is None else rows
        rows = {client: known.get(client, 0) for client in {*self._cohort.clients, *weights}}
        finding = SharesFinding.of(by, rows, weights, self._cohort.counted(weights))
        self.publish(finding)
        for note in finding.notes(may_cap=self._cohort.may_cap):
            self.note_once(note)

    async def optional(self, replies: Awaitable[dict[str, R]], otherwise: str) -> dict[str, R]:
        """Replies that the job can do without.

        Args:
            replies: What the cohort was asked.
            otherwise: Beginning of the note where too few clients can or may answer, e.g. `no metrics`; there are no
                replies then.
        """
        try:
            return await replies
        except QuorumNotMetError as err:
            self.note(f"{otherwise}: {err}")
            return {}

    def without_lost(self, members: Members, answered: Members) -> Members:
        """Go on with those of the members who answered: the pooled problem is theirs from here on."""
        for client in sorted(set(members) - set(answered)):
            why = self._cohort.why_missing(client)
            self.note(f"{client} is out of the pooled problem from here on, which is that of the others: {why}")
        return answered

    def joined(self, client: str) -> None:
        """Tell that a client takes part from now on that did not before."""
        words = f"{client} joined behind round {self._round}"
        self._journal.event(JobEvent(EventKind.CLIENT_JOINED, self._round, client=client, message=words))

    def wait(self, why: str) -> None:
        """Say what the job waits for; empty: nothing any more."""
        self._journal.event(JobEvent(EventKind.WAITING, self._round, message=why and f"waiting: {why}"))

    def tell_loudest(self) -> None:
        """Note the client whose numbers were the farthest beyond all others', though they counted; once for each."""
        loud = self._cohort.loudest
        if loud is not None:
            self.note_first(f"loud {loud.client}", loud.words)

    def tell_odd(self) -> None:
        """Note at the end whose numbers were far beyond all others', or pointed against them, though they counted."""
        self.tell_loudest()
        loud = self._cohort.loudest
        for odd in self._cohort.odd:
            if loud is None or loud.client != odd.client:
                self.note_first(f"odd {odd.client}", odd.words)
        if (pair := self._cohort.opposed) and not (self._resumed or self.former):  # they may begin at the optimum
            self.note_first("opposed", pair.words)

    def note_first(self, subject: str, message: str) -> None:
        """Tell the operator the first that there is of a subject."""
        if subject not in self._told:
            self._told.add(subject)
            self.note(message)

    def note_once(self, message: str) -> None:
        """Tell the operator something that may be found again in later rounds; it is told the first time."""
        self.note_first(message, message)

    def note(self, message: str) -> None:
        """Tell the operator something, once, in words."""
        self._journal.event(JobEvent(EventKind.NOTE, self._round, message=message))
