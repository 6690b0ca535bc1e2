"""The rows that a client takes from its stream for a round, and those that it leaves out.

A row with a number that the agreed ranges make impossible comes from a fault: a code for "no value", a unit, a loose
wire. One such row would spoil the model of this client and of the others, so it is not learned, and counted.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.combinations import combinations_of
from kernfed.maths.few_rows import columns_of_few, levelled
from kernfed.methods.online.stream_step import rows_of_round
from kernfed_client.data.few_in_columns import fewest_alike
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.ranges import row_outside
from kernfed_client.data.split import JOINED_RULES
from kernfed_client.methods.online.state import MAX_WAITING, ClientState, LeftOut, Waiting
from kernfed_client.streams.faults import FileChange, RowFault
from kernfed_client.streams.streams import Position, Row, Stream

_POLL_S = 0.02
_MOST_TIMES = 64
"""A round in which few rows stand out grows to at most so many times the policy's least number of rows, and to no more
rows than the training rows that the client stated: the coordinator believes no larger one."""
_KEPT_KEYS = 10_000
"""Keys of rows that had their target, by which one that comes twice is told."""

Predict = Callable[[Floats], float]
"""Scaled row to prediction in the data's units."""
Outside = Callable[[Floats | None, float | None], bool]
"""(features, target, in the data's units) of a row to whether the job calls one of them impossible."""


def _nowhere(x: Floats | None, y: float | None) -> bool:
    del x, y
    return False


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of a round, and the stream behind them. n rows with targets."""

    x: tuple[Floats, ...]
    """Scaled where `numbers` is -1, else in the data's units."""
    numbers: tuple[int, ...]
    """Of rows of a table; -1: of a live stream."""
    y: Floats
    told: Floats
    position: Position
    left_out: LeftOut
    waiting: Mapping[str, Waiting]
    ended: bool
    waits_for_disk: bool = False
    """Whether rows are at hand that the client cannot write down."""

    def without_rows(self) -> Taken:
        """With all rows counted as ones whose step failed."""
        left_out = dataclasses.replace(self.left_out, failed=self.left_out.failed + len(self.y))
        return dataclasses.replace(self, x=(), numbers=(), y=np.empty(0), told=np.empty(0), left_out=left_out)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds beyond which a row is left out."""

    norm: float
    """Largest norm of a scaled row."""
    low: float
    """Least target, in the data's units; `high`: largest."""
    high: float

    @staticmethod
    def of(target_low: float, target_span: float, spans: float) -> Limits:
        """So many spans beyond the agreed ranges: rows of norm 0 to 1, targets of `target_low` and above.

        Args:
            target_low: Least target agreed on.
            target_span: Largest less least.
            spans: How many; 0: no row is left out.
        """
        if not spans:
            return Limits(math.inf, -math.inf, math.inf)
        margin = spans * target_span
        return Limits(1.0 + spans, target_low - margin, target_low + target_span + margin)

    def row(self, scaled: Floats) -> bool:
        """Whether a scaled row lies within; one that overflowed does not."""
        with np.errstate(over="ignore"):
            return math.sqrt(float(scaled @ scaled)) <= self.norm

    def target(self, y: float) -> bool:
        """Whether a target lies within."""
        return self.low <= y <= self.high


def taker_of(job: LocalJob, stream: Stream, scaled: Callable[[Floats], Floats], limits: Limits) -> RowTaker:
    """As the job and this client's policy say; arguments as of `RowTaker`."""
    joins = job.data.rules >= JOINED_RULES
    apart = job.fewest_apart[0] if joins else 1
    outside = functools.partial(row_outside, job.schema)
    alike = fewest_alike(job.file.policy, job.data.rules)
    most = min(_MOST_TIMES * max(apart, alike), job.num_rows)
    return RowTaker(stream, scaled, job.file.policy.min_rows, limits, outside, apart, most, alike)


class RowTaker:
    """Takes the rows of a round from one stream."""

    def __init__(
        self,
        stream: Stream,
        scaled: Callable[[Floats], Floats],
        least_rows: int,
        limits: Limits,
        outside: Outside = _nowhere,
        fewest_apart: int = 1,
        most_rows: int = 1,
        fewest_alike: int = 1,
    ) -> None:
        """Args are those of the job: `scaled` maps a row to norm about 1, `least_rows` is the policy's.

        So is `fewest_apart`: no fewer rows of a round stand out in a column, or by their target; and `fewest_alike`: no
        fewer have one of few combinations of values. A round grows to at most `most_rows` for it.
        """
        self._most_rows = most_rows - most_rows % least_rows
        self._fewest = _Fewest(fewest_apart, fewest_alike)
        self._outside = outside
        self._stream = stream
        self._scaled = scaled
        self._least_rows = least_rows
        self._limits = limits
        self._answered: dict[str, None] = {}

    def take(self, state: ClientState, batch_rows: int, wait_s: float, predict: Predict) -> Taken:
        """Read rows until there are enough with targets, or none for `wait_s` seconds.

        A round has whole multiples of the policy's least number; what is more is left in the stream for a later round,
        or left out at its end. Rows of which a few stand out are left in the stream too, until more of their kind came,
        or many others: then those few are left out.
        """
        wanted = rows_of_round(batch_rows, self._least_rows)
        return self._take(state, wanted, max(wanted, self._most_rows), wait_s, predict)

    def learns(self, x: Floats, y: float) -> bool:
        """Whether a row of a table, in the data's units, is learned for its own sake: no range makes it impossible."""
        with np.errstate(over="ignore"):
            within = self._limits.row(self._scaled(x)) and self._limits.target(y)
        return within and not self._outside(x, y)

    def _take(self, state: ClientState, wanted: int, grown: int, wait_s: float, predict: Predict) -> Taken:
        """Take so many rows, and up to `grown` where few stand out; 0: just so many, which are there."""
        least, few = self._least_rows, self._fewest
        most = grown or wanted
        deadline = time.monotonic() + wait_s
        made = _Round(state, self._limits, self._scaled, predict, self._outside, self._answered)
        while more := made.lacks(wanted, most, few, least):
            chunk = self._stream.read(made.position, more)
            made.position = chunk.position
            made.faults.update(chunk.faults)
            made.changes.update(chunk.changes)
            made.waits_for_disk = chunk.waits_for_disk
            for row in chunk.rows:
                orphan = made.add(row)
                if orphan is not None:
                    self._stream.leave_out(orphan, row.where)
            if not chunk.rows and not chunk.faults and not chunk.changes:
                enough = len(made.y) >= least and not made.has_few(few)
                if enough or self._stream.ended(made.position) or time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_S)
        while len(made.waiting) > MAX_WAITING:
            del made.waiting[next(iter(made.waiting))]
            made.faults[RowFault.UNANSWERED] += 1
        while len(self._answered) > _KEPT_KEYS:
            del self._answered[next(iter(self._answered))]
        ended = self._stream.ended(made.position)
        uneven = len(made.y) % least
        if uneven and ended:
            made.cut(len(made.y) - uneven)
        elif uneven and len(made.y) > least and grown:
            return self._take(state, len(made.y) - uneven, 0, 0.0, predict)
        whole = ended or 0 < grown <= len(made.y)
        if whole:
            made.leave_few_out(few)
        if 0 < len(made.y) < least or made.has_few(few):
            if not whole:  # leave them in the stream, so that they are learned with others
                none = np.empty(0)
                before = state.position, state.left_out, state.waiting
                return Taken((), (), none, none, *before, False, made.waits_for_disk)
            made.cut(0)
        return made.taken(ended)


class _Fewest(NamedTuple):
    """Fewest rows of a round that may be so; 1: any number."""

    apart: int
    """Stand out in a column, or by their target."""
    alike: int
    """Have one of few combinations of values."""


class _Round:
    """Rows of a round while they are read."""

    def __init__(
        self,
        state: ClientState,
        limits: Limits,
        scaled: Callable[[Floats], Floats],
        predict: Predict,
        outside: Outside,
        answered: dict[str, None],
    ) -> None:
        self._limits, self._scaled, self._predict, self._outside = limits, scaled, predict, outside
        self._answered = answered
        self._before = state.left_out
        self.position: Position = state.position
        self.waiting = dict(state.waiting)
        self.faults: Counter[RowFault] = Counter()
        self.changes: Counter[FileChange] = Counter()
        self.waits_for_disk = False
        self._far = self._repeated = self._rare = 0
        self.x: list[Floats] = []
        self.numbers: list[int] = []
        self.y: list[float] = []
        self.told: list[float] = []

    def add(self, row: Row) -> RowFault | None:
        """Take a row, let it wait for its target, or leave it out; returns what is wrong with a target alone."""
        if row.x is None and row.key not in self.waiting:
            fault = RowFault.TWICE if row.key in self._answered else RowFault.NO_KEY
            self.faults[fault] += 1
            return fault
        self._add(row)
        return None

    def _add(self, row: Row) -> None:
        if row.y is None and row.key in self.waiting:
            self._repeated += 1  # its target could not be told from that of the row that waits
            return
        earlier = self.waiting.pop(row.key, None) if row.key is not None else None
        if row.key is not None and row.y is not None:
            self._answered[row.key] = None
        if self._outside(row.x, row.y):
            self._far += 1
            return
        scaled = earlier.x if row.x is None and earlier is not None else self._within(np.asarray(row.x))
        if scaled is None or (row.y is not None and not self._limits.target(row.y)):
            self._far += 1
            return
        if row.y is None:
            self.waiting[str(row.key)] = Waiting(scaled, self._predict(scaled))
            return
        of_table = row.number >= 0 and row.x is not None  # is scaled with its block
        self.x.append(np.asarray(row.x) if of_table else scaled)
        self.numbers.append(row.number if of_table else -1)
        self.y.append(row.y)
        self.told.append(math.nan if earlier is None else earlier.told)

    def lacks(self, wanted: int, most: int, fewest: _Fewest, least: int) -> int:
        """Rows to read until there are enough; some more where few stand out, up to `most` in all; 0: none."""
        if (num := len(self.y)) < wanted:
            return wanted - num
        if num % least:
            return least - num % least
        return min(max(fewest.apart, fewest.alike), most - num) if num < most and self.has_few(fewest) else 0

    def has_few(self, fewest: _Fewest) -> bool:
        """Whether fewer rows than that stand out in a column, or by their target, or have a combination of values."""
        if not self.y:
            return False
        apart = fewest.apart > 1 and bool(columns_of_few(self._columns(), fewest.apart).any())
        return apart or bool(self._rare_ones(fewest.alike).any())

    def _rare_ones(self, fewest: int) -> Array:
        found = combinations_of(np.array(self.x)) if fewest > 1 else None
        return np.zeros(len(self.y), dtype=np.bool_) if found is None else found.rare(fewest)

    def cut(self, num: int) -> None:
        """Keep the first rows alone."""
        self.x, self.numbers, self.y, self.told = self.x[:num], self.numbers[:num], self.y[:num], self.told[:num]

    def leave_few_out(self, fewest: _Fewest) -> None:
        """Leave out rows that stand out where fewer than that do, and those that then do."""
        while self.has_few(fewest):
            columns = self._columns()
            stays = (levelled(columns.copy(), fewest.apart) == columns).all(axis=1)
            kept = np.flatnonzero(stays & ~self._rare_ones(fewest.alike))
            self._rare += len(columns) - len(kept)
            self.x, self.numbers = [self.x[i] for i in kept], [self.numbers[i] for i in kept]
            self.y, self.told = [self.y[i] for i in kept], [self.told[i] for i in kept]

    def _columns(self) -> Floats:
        return np.column_stack([np.array(self.x), np.array(self.y)])

    def _within(self, x: Floats) -> Floats | None:
        with np.errstate(over="ignore"):
            scaled = self._scaled(x)
        return scaled if self._limits.row(scaled) else None

    def taken(self, ended: bool) -> Taken:
        """All of it."""
        left_out = self._before.and_more(self.faults, self.changes, self._far, self._repeated, self._rare)
        return Taken(
            tuple(self.x),
            tuple(self.numbers),
            np.array(self.y),
            np.array(self.told),
            self.position,
            left_out,
            self.waiting,
            ended,
            self.waits_for_disk,
        )
