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
from kernfed.errors import DivergedError
from kernfed.federation.cohort import Cohort
from kernfed.federation.evaluation import metrics, pool
from kernfed.federation.events import RoundMetrics, Scores
from kernfed.federation.messages.base import Reply, Request, fields_of
from kernfed.federation.messages.evaluation import MetricSums
from kernfed.methods.online.finding import OnlineFinding, StreamOfClient
from kernfed.methods.online.messages import StreamMetrics, StreamMetricsRequest
from kernfed.methods.online.settings import StreamSettings
from kernfed_server.jobs.preparation import Setup
from kernfed_server.jobs.run import Model, Run
from kernfed_server.methods.online.agreed import Opened, to_arrays
from kernfed_server.methods.online.newcomers import Newcomers

_LONGEST_WAIT_S = 10.0
_END = 2_000_000_000


class StreamReply(Protocol):
    """Fields that all answers of rounds have."""

    @property
    def num_samples(self) -> int:
        """Rows learned from."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the stream has no more rows."""
        ...

    @property
    def needs_whole(self) -> bool:
        """Whether the client lacks what the request builds on."""
        ...

    @property
    def num_waiting(self) -> int:
        """Rows without a target so far."""
        ...

    @property
    def num_skipped(self) -> int:
        """Rows left out so far."""
        ...


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

    def model(self, round_num: int) -> Model | None:
        """Model of the job if it ends now."""
        ...


class StreamLoop:
    """The rounds of one job."""

    def __init__(self, setup: Setup, opened: Opened, settings: StreamSettings, cohort: Cohort, run: Run) -> None:
        self._setup = setup
        self._opened = opened
        self._settings = settings
        self._cohort = cohort
        self._run = run
        self._held: dict[str, int] = {}
        self._ended: set[str] = set()
        self._num_rows = 0
        self._before: dict[str, tuple[int, float]] = {}
        """Rows and squared error of each client when it was last measured."""
        self._bytes = {"up": 0, "down": 0}
        self._answers = 0
        self._skipped: dict[str, int] = {}
        self._measured = 0
        self._float_bytes = 8 if cohort.float_epsilon < 1e-12 else 4
        self._newcomers = Newcomers(cohort, run)
        self._kept: tuple[int, dict[str, Array]] = (-1, {})
        self._writing: asyncio.Future[None] | None = None

    async def go(self, method: Method, facts: OnlineFinding) -> Model | None:
        """Run rounds until the streams end, or as many as asked for.

        Args:
            method: What is asked and done.
            facts: Of the method, for the findings.

        Raises:
            DivergedError: The parameters are no longer finite.
            QuorumNotMetError: Too few clients, for too long.
        """
        run, settings = self._run, self._settings
        if run.resumed is not None:
            self._num_rows = int(run.resumed["num_rows"][0])
        last_round = 0
        last: dict[str, StreamMetrics] = {}
        try:
            async for round_num in run.rounds(settings.rounds or _END):
                replies = await self._ask(method, round_num)
                if replies is None:
                    break
                method.absorb(round_num, replies)
                self._num_rows += sum(reply.num_samples for reply in replies.values())
                state = {**method.to_arrays(), "num_rows": np.array([self._num_rows])}
                if not all(np.isfinite(array).all() for array in state.values()):
                    raise DivergedError(
                        f"round {round_num}: the parameters are no longer finite; lower method.learning_rate, or use "
                        'rates = "adaptive"'
                    )
                found = RoundMetrics(training=self._training())
                due = round_num % settings.metrics_every == 0 or round_num == settings.rounds
                if due:
                    last = await self._measure()
                    found = self._metrics(last)
                await self._on_disk()
                self._writing = asyncio.ensure_future(run.close(round_num, state | self._agreed(), found))
                last_round = round_num
                run.keep(functools.partial(method.model, round_num))
                if due and self._worth_publishing(round_num):
                    self._publish(last, facts)
            last = await self._measure() or last
            await self._on_disk()
        finally:
            self._newcomers.stop()
            if self._writing is not None:
                self._writing.cancel()
            if last:  # also of a job that is cancelled
                self._publish(last, facts)
        return method.model(last_round)

    async def _on_disk(self) -> None:
        """Wait until the state after the last round is: it was written while the round after it was under way."""
        if self._writing is not None:
            await self._writing
            self._writing = None

    def _agreed(self) -> dict[str, Array]:
        """For the checkpoint; made anew when there are other clients."""
        num_rows = self._cohort.num_rows
        if self._kept[0] != len(num_rows):
            self._kept = len(num_rows), to_arrays(self._setup, self._opened, num_rows)
        return self._kept[1]

    async def _ask(self, method: Method, round_num: int) -> dict[str, Any] | None:
        """Answers of clients with rows; None where all streams have ended."""
        wait_s = 0.0
        while True:
            self._newcomers.look()
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
            self._note_skipped(replies)
            self._ended |= {client for client, reply in replies.items() if reply.ended}
            replies = {client: replies[client] for client in sorted(replies) if replies[client].num_samples}
            if replies:
                return replies
            wait_s = min(max(self._settings.wait_s, wait_s * 1.5), _LONGEST_WAIT_S)

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
        alike: dict[int, Request[Any]] = {}
        for client in clients:
            held = self._held.get(client, -1)
            if held not in alike:
                alike[held] = method.request(round_num, held, wait_s)
            requests[client] = alike[held]
        if len(alike) == 1:  # mostly: it is then serialized once for all of them
            replies = await self._cohort.ask(next(iter(alike.values())), clients=clients, drawn=True)
        else:
            replies = await self._cohort.ask_each(requests, drawn=True)
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

    def _note_skipped(self, replies: Mapping[str, StreamReply]) -> None:
        for client, reply in replies.items():
            before = self._skipped.get(client, 0)
            if reply.num_skipped > 2 * before:  # not for each row
                self._run.note(f"{client} left out {reply.num_skipped} rows of its stream so far: a value is faulty")
                self._skipped[client] = reply.num_skipped

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
        return await self._run.optional(asked, "no metrics")

    def _metrics(self, found: Mapping[str, StreamMetrics]) -> RoundMetrics:
        """All predictions so far, and those since the last measurement, by which drift is seen."""
        task = self._setup.schema.task
        clients: dict[str, dict[str, Scores]] = {}
        recent_rows, recent_error = 0, 0.0
        for client, m in sorted(found.items()):
            if not m.sums.num_rows:
                continue
            clients[client] = {"personal": metrics(m.sums, task)}
            rows, error = self._before.get(client, (0, 0.0))
            if m.sums.num_rows > rows:
                new, more = m.sums.num_rows - rows, max(m.sums.squared_error - error, 0.0)
                clients[client]["recent"] = {"mse": more / new}
                recent_rows, recent_error = recent_rows + new, recent_error + more
            self._before[client] = m.sums.num_rows, m.sums.squared_error
        parts: list[MetricSums] = [m.sums for _, m in sorted(found.items()) if m.sums.num_rows]
        pooled: dict[str, Scores] = {"personal": pool(parts, task)} if parts else {}
        if recent_rows:
            pooled["recent"] = {"mse": recent_error / recent_rows}
        training = self._training()
        if found:
            training["effective_kernels"] = sum(m.effective_kernels for m in found.values()) / len(found)
        return RoundMetrics(pooled, clients, training)

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
        up, down = (round(self._bytes[way] / max(self._answers, 1), 1) for way in ("up", "down"))
        self._run.publish(replace(facts, rows=self._num_rows, bytes_up=up, bytes_down=down, clients=clients))


def array_bytes(message: Request[Any] | Reply, float_bytes: int) -> int:
    """Bytes of a message's arrays on the wire."""
    total = 0
    for f in fields_of(type(message)):
        value = getattr(message, f.name)
        if isinstance(value, np.ndarray):
            total += value.size * (float_bytes if value.dtype.kind == "f" else value.dtype.itemsize)
    return total
