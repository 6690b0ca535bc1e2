"""The loop of every method on streams: the clients that are asked, rows or none, its end, and its record.

Clients that have no session are not waited for, unless the others are fewer than the quorum. One that comes back, or
joins, is sent all that it does not hold. A round in which nobody has a row is asked again, not closed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import DivergedError, JobError
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.base import Reply, Request, fields_of
from kernfed.methods.online.finding import OnlineFinding, StreamOfClient
from kernfed.methods.online.messages import StreamMetrics, StreamMetricsRequest
from kernfed.methods.online.server_step import MOST_PARAMETER, RUN_AWAY, sound
from kernfed.methods.online.settings import KernelStreamSettings, StreamSettings
from kernfed.methods.shared_settings import AveragedSettings
from kernfed.methods.shares import ALIKE
from kernfed.wording import listed
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.evaluation import tell_far_errors
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.state import Arrays, State, json_array
from kernfed_server.methods.online.counted import Counted
from kernfed_server.methods.online.faulty_data import FaultyData
from kernfed_server.methods.online.hindsight import InHindsight
from kernfed_server.methods.online.measurements import Measurements
from kernfed_server.methods.online.newcomers import Newcomers
from kernfed_server.methods.online.row_notes import Absences, EmptyStreams, GrownRounds, LeftOutNotes

METRICS_WITHOUT = "gave no metrics when they were last asked for, which are of the other clients alone"
_HELD = "held"
TRAFFIC = "traffic"
_ROUND = "round"
_LONGEST_WAIT_S = 10.0
_END = 2_000_000_000


class Method(Protocol):
    """The coordinator's part that differs from method to method."""

    def request(self, round_num: int, held: int, wait_s: float) -> Request[Any]:
        """The question to a client that holds what the request of round `held` brought; -1: nothing."""
        ...

    def absorb(self, round_num: int, replies: Mapping[str, Any]) -> None:
        """Move by what clients with rows sent, in the order of their names; at least one."""
        ...

    def to_arrays(self) -> Mapping[str, Array]:
        """State that a resumed run needs."""
        ...

    def model(self, arrays: Arrays, round_num: int) -> Model | None:
        """Model of the job if it ends with the state that `to_arrays` gave after a round; None where it leaves none."""
        ...


class StreamLoop:
    """The rounds of one job."""

    def __init__(
        self, setup: Setup, settings: StreamSettings, cohort: Cohort, run: Run, rows: Mapping[str, int]
    ) -> None:
        """Take what was agreed on; `rows` are those of a round, by the client, that its policy and the job ask for."""
        self._setup = setup
        self._settings = settings
        self._cohort = cohort
        self._run = run
        self._held: dict[str, int] = {}
        """Round whose request brought each client what it holds. In checkpoints, so that a run that resumes asks in the
        words of before: all parameters would take the place of those that a client moves by itself."""
        if run.resumed is not None and _HELD in run.resumed:
            self._held = run.resumed.json(_HELD)
        self._counted = Counted(run.resumed)
        self._ended: set[str] = set()
        self._num_rows = 0
        self._measurements = Measurements(setup.schema.task, run.resumed)
        self._bytes, self._answers = {"up": 0, "down": 0}, 0
        if run.resumed is not None and TRAFFIC in run.resumed:
            self._bytes["up"], self._bytes["down"], self._answers = run.resumed[TRAFFIC].tolist()
        self._left_out = LeftOutNotes(run, settings.outlier_spans)
        self._grown = GrownRounds(run, rows)
        self._empty = EmptyStreams(run)
        self._absences = Absences(run)
        self._measured = 0
        self._unmeasured: frozenset[str] = frozenset()
        self._float_bytes = 8 if cohort.float_epsilon < 1e-12 else 4
        self._newcomers = Newcomers(cohort, run)
        self._faulty = FaultyData(cohort, run)
        self._writing: asyncio.Future[None] | None = None
        self._wants_hindsight = isinstance(settings, KernelStreamSettings) and settings.hindsight
        self._hindsight: InHindsight | None = None

    async def go(self, method: Method, facts: OnlineFinding, hindsight: InHindsight | None = None) -> Model | None:
        """Run rounds until the streams end, or as many as asked for.

        Args:
            method: What is asked and done.
            facts: Of the method, for the findings.
            hindsight: Against which the regret is measured at the end, where the method has kernels.

        Raises:
            DivergedError: The parameters ran away.
            QuorumNotMetError: Too few clients, for too long.
        """
        run, settings, kept = self._run, self._settings, method.to_arrays()
        if run.resumed is not None:
            self._num_rows = int(run.resumed["num_rows"][0])
            run.keep(functools.partial(method.model, kept, run.round_num))
        run.sound.leave_by(functools.partial(_left, method), _not_measured)
        leaves_model = method.model(kept, 0) is not None
        last_round = 0 if run.resumed is None else run.round_num
        measured_rows = 0
        last: dict[str, StreamMetrics] = {}
        try:
            async for round_num in run.rounds(settings.rounds or _END):
                replies = await self._ask(method, round_num)
                if replies is None:
                    if self._num_rows > measured_rows:
                        # A round without rows closes the job: the measurement of the end belongs to some round.
                        last = await self._measure() or last
                        await self._on_disk()
                        found = self._metrics(last)
                        await run.record(round_num, self._state(kept), found)
                    break
                method.absorb(round_num, replies)
                self._counted.add(replies, round_num)
                self._grown.note(round_num, replies)
                self._num_rows += sum(reply.num_samples for reply in replies.values())
                moved = method.to_arrays()
                if not _sound(moved):
                    raise DivergedError(f"round {round_num}: {RUN_AWAY.format(MOST_PARAMETER)}")
                found = RoundMetrics(training=self._training())
                due = round_num % settings.metrics_every == 0 or round_num == settings.rounds or self._all_ended()
                if due:
                    last = await self._measure()
                    found = self._metrics(last)
                    measured_rows = self._num_rows
                    if leaves_model:
                        run.came_to({**moved, _ROUND: np.array([round_num])}, found)
                await self._on_disk()
                self._writing = asyncio.ensure_future(run.close(round_num, self._state(moved), found))
                last_round, kept = round_num, moved
                run.keep(functools.partial(method.model, kept, round_num))
                if due and self._worth_publishing(round_num):
                    self._publish(last, facts)
            await self._on_disk()
            if hindsight is not None and self._wants_hindsight and last:
                await hindsight.measure(self._cohort, run, last)
                self._hindsight = hindsight
            run.ends(Arrival(self._how_it_ended(last)))
        finally:
            self._newcomers.stop()
            if self._writing is not None:
                self._writing.cancel()
            if last:  # also of a job that is cancelled
                self._publish(last, facts)
        return method.model(kept, last_round)

    def _how_it_ended(self, last: Mapping[str, StreamMetrics]) -> str:
        """In words; a method that is measured without a bound on its regret says so."""
        ended = sorted(self._ended)
        bound = "; no bound on the regret is known" if last and all(m.regret_bound < 0 for m in last.values()) else ""
        if self._all_ended():
            return f"all streams have ended, after {self._num_rows:,} rows{bound}"
        waiting = f"; ended before: {listed(ended)}" if ended else ""
        return f"all {self._settings.rounds:,} rounds are used up, after {self._num_rows:,} rows{waiting}{bound}"

    async def _on_disk(self) -> None:
        """Wait until the state after the last round is: it was written while the round after it was under way."""
        if self._writing is not None:
            await self._writing
            self._writing = None

    def _state(self, moved: Arrays) -> dict[str, Array]:
        rows = np.array([self._num_rows])
        traffic = np.array([self._bytes["up"], self._bytes["down"], self._answers])
        own = {"num_rows": rows, _HELD: json_array(self._held), TRAFFIC: traffic}
        return {**moved, **own, **self._counted.to_arrays(), **self._measurements.to_arrays()}

    def _all_ended(self) -> bool:
        return self._ended.issuperset(self._cohort.clients)

    def _metrics(self, found: Mapping[str, StreamMetrics]) -> RoundMetrics:
        tell_far_errors({client: (m.sums, *m.alone) for client, m in found.items()}, self._run)
        return self._measurements.metrics(found, self._training())

    async def _ask(self, method: Method, round_num: int) -> dict[str, Any] | None:
        """Answers of clients with rows; None where all streams have ended."""
        wait_s = 0.0
        while True:
            self._newcomers.look()
            self._faulty.look()
            asked = self._whom()
            if not asked:
                if await self._newcomers.settle():
                    continue
                return None
            replies = await self._each(method, round_num, asked, wait_s)
            lacking = [client for client, reply in replies.items() if reply.needs_whole]
            for client in lacking:
                self._held.pop(client, None)
            if lacking:
                replies = {**replies, **await self._each(method, round_num, lacking, wait_s)}
            self._left_out.note(replies)
            self._ended |= {client for client, reply in replies.items() if reply.ended}
            replies = {
                client: replies[client] for client in sorted(replies) if self._may_count(client, replies[client])
            }
            self._empty.note(asked, rows=bool(replies))
            if replies:
                not_away = {*asked, *self._ended, *self._newcomers.late, *self._cohort.faults}
                self._absences.note(round_num, frozenset(self._cohort.clients) - not_away)
                return replies
            wait_s = min(max(self._settings.wait_s, wait_s * 1.5), _LONGEST_WAIT_S)

    def _may_count(self, client: str, reply: Any) -> bool:
        """Whether an answer has rows, and not more than the client can have taken; who states more is asked no more.

        A client takes `batch_rows`, or as many as its policy asks for, which are at most the training rows it stated.
        """
        most = max(self._settings.batch_rows, self._cohort.num_rows.get(client, 0))
        stated: int = reply.num_samples
        if stated > most:
            self._ended.add(client)
            self._run.note(
                f"{client} states {stated:,} rows of one round, and can have taken at most {most:,}: it is "
                "left out from now on"
            )
        return 0 < stated <= most

    def _whom(self) -> list[str]:
        late = self._newcomers.late
        clients = [c for c in self._cohort.clients if c not in self._ended | late and c not in self._cohort.faults]
        present = [c for c in self._cohort.present if c in clients]
        away = len(self._cohort.clients) - len(self._cohort.present)
        # With too few of them it is the cohort that waits, and says for whom.
        return (
            present
            if present and len(present) + len(self._ended) >= min(self._cohort.needed, len(clients))
            else (clients if away else present or clients)
        )

    async def _each(self, method: Method, round_num: int, clients: list[str], wait_s: float) -> dict[str, Any]:
        requests: dict[str, Request[Any]] = {}
        alike: dict[tuple[int, int], Any] = {}
        for client in clients:
            known = self._held.get(client, -1), self._counted.uncounted_from(client)
            if known not in alike:
                made: Any = method.request(round_num, known[0], wait_s)
                alike[known] = replace(made, uncounted_from=known[1])
            requests[client] = alike[known]
        if len(alike) == 1:  # mostly: it is then serialized once for all of them
            shared = next(iter(alike.values()))
            replies = await self._faulty.waited(lambda: self._cohort.ask(shared, clients=clients, drawn=True))
        else:
            replies = await self._faulty.waited(lambda: self._cohort.ask_each(requests, drawn=True))
        for client in clients:
            if client in replies and not replies[client].needs_whole:
                self._held[client] = round_num
            else:
                self._held.pop(client, None)
        self._count(requests, replies)
        return dict(replies)

    def _count(self, requests: Mapping[str, Request[Any]], replies: Mapping[str, Reply]) -> None:
        for client, reply in replies.items():
            self._bytes["down"] += array_bytes(requests[client], self._float_bytes)
            self._bytes["up"] += array_bytes(reply, self._float_bytes)
        self._answers += len(replies)

    def _training(self) -> dict[str, float]:
        each = max(self._answers, 1)
        return {
            "rows": float(self._num_rows),
            "bytes_up": self._bytes["up"] / each,
            "bytes_down": self._bytes["down"] / each,
        }

    async def _measure(self) -> dict[str, StreamMetrics]:
        clients = [c for c in self._cohort.present if c not in self._newcomers.late]
        if not clients:
            return {}
        asked = self._cohort.ask(StreamMetricsRequest(), clients=clients, drawn=True)
        found: dict[str, StreamMetrics] = await self._run.optional(asked, "no metrics")
        missing = frozenset(self._cohort.clients) - self._newcomers.late - found.keys()
        if found and missing - self._unmeasured:
            self._run.note(f"{listed(sorted(missing))} {METRICS_WITHOUT}")
        self._unmeasured = missing
        return found

    def _worth_publishing(self, round_num: int) -> bool:
        """Seldom, for findings are kept: at the 1st, 2nd, 4th … measurement, and the last."""
        self._measured += 1
        return self._measured & (self._measured - 1) == 0 or round_num == self._settings.rounds

    def _publish(self, found: Mapping[str, StreamMetrics], facts: OnlineFinding) -> None:
        clients = {
            client: StreamOfClient(
                rows=m.sums.num_rows,
                mse=m.sums.squared_error / m.sums.num_rows,
                regret=m.total_loss - m.best_kernel_loss,
                regret_bound=None if m.regret_bound < 0 else m.regret_bound,
                effective_kernels=m.effective_kernels,
            )
            for client, m in sorted(found.items())
            if m.sums.num_rows
        }
        rows = {client: of.rows for client, of in clients.items()}
        settings = self._settings
        alike = isinstance(settings, AveragedSettings) and settings.rule.alike
        weights = {client: 1.0 if alike else float(n) for client, n in rows.items()}
        if not self._unmeasured:  # shares of some of the clients would be none
            self._run.weighs(weights, ALIKE if alike else "rows learned so far", rows)
        up, down = (round(self._bytes[way] / max(self._answers, 1), 1) for way in ("up", "down"))
        finding = replace(facts, rows=self._num_rows, bytes_up=up, bytes_down=down, clients=clients)
        self._run.publish(finding if self._hindsight is None else self._hindsight.put_into(finding))


async def _left(method: Method, of: State) -> Model | None:
    """What a run leaves that diverges after a round that was measured."""
    return method.model(of, int(of.number(_ROUND)))


async def _not_measured(_of: State) -> RoundMetrics:
    raise JobError("a row of a stream is predicted once, before it is learned from")


def _sound(state: Mapping[str, Array]) -> bool:
    """Whether all is finite, and parameters of kernels or weights of a network are as large as they may be at most."""
    parameters = (state[name] for name in ("theta", "weights") if name in state)
    return all(map(sound, parameters)) and all(bool(np.isfinite(array).all()) for array in state.values())


def array_bytes(message: Request[Any] | Reply, float_bytes: int) -> int:
    """Bytes of a message's arrays on the wire."""
    total = 0
    for f in fields_of(type(message)):
        value = getattr(message, f.name)
        if isinstance(value, np.ndarray):
            total += value.size * (float_bytes if value.dtype.kind == "f" else value.dtype.itemsize)
    return total
