"""The rows that a client takes from its stream for a round, and those that it leaves out.

A row with a number that the agreed ranges make impossible comes from a fault: a code for "no value", a unit, a loose
wire. One such row would spoil the model of this client and of the others, so it is not learned, and counted.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kernfed.arrays import Floats
from kernfed.maths.few.sums import sums_of
from kernfed.methods.online.stream_step import rows_of_round
from kernfed_client.data.guards.few_in_columns import fewest_alike
from kernfed_client.data.guards.joined_blocks import joined_blocks
from kernfed_client.data.guards.split import JOINED_RULES, ROUND_RULES
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.ranges import row_outside
from kernfed_client.methods.online.round_rows import (
    ANY_NUMBER,
    Fewest,
    Limits,
    Outside,
    Predict,
    RoundRows,
    Taken,
    nowhere,
)
from kernfed_client.methods.online.state import MAX_WAITING, ClientState
from kernfed_client.streams.faults import RowFault
from kernfed_client.streams.streams import Stream
from kernfed_client.streams.used_rows import Blocks, UsedRows
from kernfed_client.streams.whole_blocks import Arranged, arranged

_POLL_S = 0.02
_MOST_TIMES = 64
"""A round in which few rows stand out grows to at most so many times the policy's least number of rows, and to no more
rows than the training rows that the client stated: the coordinator believes no larger one."""
_MOST_READ = 4
"""A round reads at most so many times its rows, where it leaves out those of blocks that are not whole."""
_KEPT_KEYS = 10_000
"""Keys of rows that had their target, by which one that comes twice is told."""


def taker_of(job: LocalJob, stream: Stream, scaled: Callable[[Floats], Floats], limits: Limits) -> RowTaker:
    """As the job and this client's policy say; arguments as of `RowTaker`.

    Raises:
        PolicyError: The record of rows that jobs used is damaged.
        OSError: The disk is full, or gone.
    """
    outside = functools.partial(row_outside, job.schema)
    fewest, policy = fewest_of(job, scaled if stream.live else None), job.file.policy
    near = policy.min_rows > 1 and policy.near_jobs != "allow" and job.durable and stream.marked
    used = UsedRows(job.file.state) if near else None
    return RowTaker(stream, scaled, policy.min_rows, limits, outside, fewest, most_rows(job, fewest), used)


def fewest_of(job: LocalJob, scaled: Callable[[Floats], Floats] | None = None) -> Fewest:
    """Fewest rows of a round that may stand out, or be alike, as the job's rules and this client's policy say.

    Sums of columns are those of the training rows, which are the stream, or come before it.

    Args:
        job: It has its rows.
        scaled: How rows of the stream are scaled where they are read; None: they are not.
    """
    apart = job.fewest_apart[0] if job.data.rules >= JOINED_RULES else 1
    alike, x = fewest_alike(job.file.policy, job.data.rules), job.data.train.x
    if apart == 1 or job.data.rules < ROUND_RULES:
        return Fewest(apart, alike)
    sums = sums_of(x if scaled is None else scaled(x), apart)
    return Fewest(apart, alike, sums if sums.num else None)


def most_rows(job: LocalJob, fewest: Fewest) -> int:
    """Rows to which a round grows where few stand out."""
    return min(_MOST_TIMES * fewest.most, job.num_rows)


class RowTaker:
    """Takes the rows of a round from one stream."""

    def __init__(
        self,
        stream: Stream,
        scaled: Callable[[Floats], Floats],
        least_rows: int,
        limits: Limits,
        outside: Outside = nowhere,
        fewest: Fewest = ANY_NUMBER,
        most_rows: int = 1,
        used: UsedRows | None = None,
    ) -> None:
        """Args are those of the job: `scaled` maps a row to norm about 1, `least_rows` is the policy's.

        So is `fewest`: no fewer rows of a round stand out, or are alike. A round grows to at most `most_rows` for it.
        `used` holds the rows that jobs used together; unset: this job's rows may differ from theirs by any number.
        """
        self._most_rows = most_rows - most_rows % least_rows
        self._fewest = fewest
        self._outside = outside
        self._stream = stream
        self._scaled = scaled
        self._least_rows = least_rows
        self._limits = limits
        self._used = used
        self._answered: dict[str, None] = {}

    def take(self, state: ClientState, batch_rows: int, wait_s: float, predict: Predict) -> Taken:
        """Read rows until there are enough with targets, or none for `wait_s` seconds.

        A round has whole multiples of the policy's least number; what is more is left in the stream for a later round,
        or left out at its end. Rows of which a few stand out are left in the stream too, until more of their kind came,
        or many others: then those few are left out. Of rows that a job used together all are taken, or none.

        Raises:
            PolicyError: The record of rows that jobs used is damaged.
            OSError: The disk is full, or gone.
        """
        wanted = rows_of_round(batch_rows, self._least_rows)
        return self._take(state, wanted, max(wanted, self._most_rows), wait_s, predict)

    def learns(self, x: Floats, y: float) -> bool:
        """Whether a row of a table, in the data's units, is learned for its own sake: no range makes it impossible."""
        with np.errstate(over="ignore"):
            within = self._limits.row(self._scaled(x)) and self._limits.target(y)
        return within and not self._outside(x, y)

    def _take(
        self, state: ClientState, wanted: int, most: int, wait_s: float, predict: Predict, *, exact: bool = False
    ) -> Taken:
        """Take so many rows, and up to `most` where few stand out; `exact`: read just so many, which are there."""
        deadline = time.monotonic() + wait_s
        made = RoundRows(state, self._limits, self._scaled, predict, self._outside, self._answered)
        blocks: dict[int, Mapping[int, int]] = {}
        found = self._found(made, blocks)
        while more := wanted - found.num if exact else self._lacks(found, wanted, most):
            chunk = self._stream.read(made.position, more)
            for fault, where in made.read(chunk):
                self._stream.leave_out(fault, where)
            if chunk.rows or chunk.faults or chunk.changes:
                if self._used is not None and found.num < len(made.marks):
                    blocks.update(self._used.blocks(made.marks[found.num :]))
                found = self._found(made, blocks)
                continue
            enough = found.rows.num >= self._least_rows and not found.has_few
            if enough or self._stream.ended(made.position) or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        while len(made.waiting) > MAX_WAITING:
            del made.waiting[next(iter(made.waiting))]
            made.faults[RowFault.UNANSWERED] += 1
        while len(self._answered) > _KEPT_KEYS:
            del self._answered[next(iter(self._answered))]
        ended = self._stream.ended(made.position)
        with contextlib.nullcontext() if self._used is None else self._used.alone():
            if self._used is not None:  # what other jobs made meanwhile counts
                found = self._found(made, self._used.blocks(made.marks))
            whole = ended or (not exact and (found.rows.num >= most or found.num >= _MOST_READ * most))
            cut = found.num if exact else self._cut(found, most, ended=ended, whole=whole)
            if cut in (0, found.num):
                wait = not cut and found.num > 0
                return _waits(state, made) if wait else self._closed(state, found, most, ended=ended, whole=whole)
        return self._take(state, cut, most, 0.0, predict, exact=True)

    def _found(self, made: RoundRows, blocks: Blocks) -> _Found:
        return _Found(made, blocks, self._least_rows, self._fewest)

    def _lacks(self, found: _Found, wanted: int, most: int) -> int:
        """Rows to read until there are enough; some more where few stand out, up to `most` in all; 0: none."""
        rows, least = found.rows, self._least_rows
        if found.num >= _MOST_READ * most:
            return 0
        if rows.num < wanted:
            return wanted - rows.num
        if rows.num < most and rows.begun:
            return rows.num_lacking
        if over := rows.num_last_free % least:
            return least - over
        return min(self._fewest.most, most - rows.num) if rows.num < most and found.has_few else 0

    def _cut(self, found: _Found, most: int, *, ended: bool, whole: bool) -> int:
        """How many rows to take; those behind are left in the stream, until more rows complete them."""
        rows, cut = found.rows, found.num
        if rows.begun and not ended:
            cut = min(block.places[0] for block in rows.begun)
        if not ended and (over := min(len(rows.free) % self._least_rows, rows.num_last_free)):
            cut = min(cut, rows.free[-over])
        if rows.num > most and rows.whole:
            cut = min(cut, rows.whole[-1].places[0])
        if whole and not cut:
            return found.num
        return cut if whole or found.num_of_first(cut) >= self._least_rows else 0

    def _closed(self, state: ClientState, found: _Found, most: int, *, ended: bool, whole: bool) -> Taken:
        """The round of the rows that were read; its blocks are kept."""
        made, rows, fewest = found.made, found.rows, self._fewest
        alone, joint = found.alone, found.joint
        free, num_rare = found.free, 0
        if found.has_few and whole:
            joint, free = [], made.without_few(free, fewest)
            num_rare = len(found.free) - len(free)
        if len(free) < self._least_rows:
            free = []
        while alone and len(free) + sum(len(block.places) for block in [*alone, *joint]) > most:
            alone = alone[:-1]
        pool = [*(block.places for block in joint), *_in_blocks(free, self._least_rows)]
        used = sorted(place for places in [*(block.places for block in alone), *pool] for place in places)
        if (found.has_few or (not used and rows.num)) and not whole:
            return _waits(state, made)
        if self._used is not None and pool:
            joined = _joined(pool, lambda places: not made.has_few(places, fewest))
            marks = [[made.marks[place] for place in places] for places in joined]
            self._used.keep(marks, [block.number for block in joint])
        behind = found.num - rows.num_last_free if found.blocks else 0
        made.keep(used, max(0, behind - sum(place < behind for place in used) - num_rare))
        return made.taken(ended)


def _waits(state: ClientState, made: RoundRows) -> Taken:
    """No rows: those that were read are left in the stream, so that they are learned with others."""
    none = np.empty(0)
    return Taken((), (), none, none, state.position, state.left_out, state.waiting, False, made.waits_for_disk)


class _Found:
    """The rows of a round, by the blocks that jobs used so far."""

    def __init__(self, made: RoundRows, blocks: Blocks, least: int, fewest: Fewest) -> None:
        self.made, self.blocks, self.num = made, blocks, len(made.marks)
        self.rows: Arranged = arranged(made.marks, blocks, made.lost)
        few = [made.has_few(block.places, fewest) for block in self.rows.whole]
        self.alone = [block for block, has in zip(self.rows.whole, few, strict=True) if not has]
        """Blocks that may be told as they are."""
        self.joint = [block for block, has in zip(self.rows.whole, few, strict=True) if has]
        """Blocks in which few rows stand out: they may be told together, with rows that are of none."""
        self.free = list(self.rows.free[: len(self.rows.free) // least * least])
        """Rows of no block that make up whole ones."""
        joint = [place for block in self.joint for place in block.places]
        self.has_few = made.has_few(sorted([*joint, *self.free]), fewest)
        """Whether few rows stand out in those."""

    def num_of_first(self, num: int) -> int:
        """Rows of whole blocks, and of none, among the first ones."""
        return arranged(self.made.marks[:num], self.blocks, self.made.lost).num


def _in_blocks(places: Sequence[int], least: int) -> list[Sequence[int]]:
    """Rows in blocks of the least number, the last of which has what is over."""
    starts = range(0, len(places) // least * least, least)
    return [places[at : at + least if at < starts[-1] else None] for at in starts]


def _joined(blocks: Sequence[Sequence[int]], allowed: Callable[[Sequence[int]], bool]) -> list[list[int]]:
    """Blocks of rows, by their places, joined until each is allowed."""
    in_order = sorted(blocks, key=lambda block: block[0])
    places = np.concatenate([np.asarray(block, dtype=np.int64) for block in in_order])
    number = np.repeat(np.arange(len(in_order)), [len(block) for block in in_order])
    found = joined_blocks(number, lambda rows: allowed(places[rows].tolist()))
    return [places[found == block].tolist() for block in range(int(found.max()) + 1)]
