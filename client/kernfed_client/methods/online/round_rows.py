"""Rows of a round while they are read from a stream, and after; and the bounds beyond which a row is left out."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.maths.few.combinations import combinations_of
from kernfed.maths.few.rows import columns_of_few, levelled
from kernfed.maths.few.sums import SparseSums
from kernfed_client.methods.online.state import ClientState, LeftOut, Waiting
from kernfed_client.streams.faults import FileChange, RowFault
from kernfed_client.streams.streams import Chunk, Position, Row

Predict = Callable[[Floats], float]
"""Scaled row to prediction in the data's units."""
Outside = Callable[[Floats | None, float | None], bool]
"""(features, target, in the data's units) of a row to whether the job calls one of them impossible."""


def nowhere(x: Floats | None, y: float | None) -> bool:
    """Calls nothing impossible."""
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


class Fewest(NamedTuple):
    """Fewest rows of a round that may be so; 1: any number."""

    apart: int = 1
    """Stand out in a column, in a sum of columns, or by their target."""
    alike: int = 1
    """Have one of few combinations of values."""
    sums: SparseSums | None = None
    """Of columns that are 0 in most rows of the client's; None: none were looked for."""

    @property
    def most(self) -> int:
        """The larger of the two numbers."""
        return max(self.apart, self.alike)

    def blames(self, columns: Floats) -> Array:
        """In which columns fewer rows stand out, or have a combination of values; (P + 1,), the target is the last.

        Args:
            columns: Of the rows of a round, (n, P + 1).
        """
        few = np.zeros(columns.shape[1], dtype=np.bool_)
        if self.apart > 1:
            found = columns_of_few(self._with_sums(columns), self.apart)
            few |= found[: len(few)]
            if self.sums is not None:
                few[:-1] |= self.sums.used[found[len(few) :]].any(axis=0)
        rare, alike = self.rare_ones(columns[:, :-1])
        if rare.any():
            few[alike] = True
        return few

    def stay(self, columns: Floats) -> Array:
        """Which rows, (n, P + 1), are none of few that stand out or are alike, (n,)."""
        judged = self._with_sums(columns)
        of_many: Array = (levelled(judged.copy(), self.apart) == judged).all(axis=1)
        return of_many & ~self.rare_ones(columns[:, :-1])[0]

    def _with_sums(self, columns: Floats) -> Floats:
        """Columns, and behind them for each sum 1 in the rows in which it is not 0."""
        if self.sums is None:
            return columns
        return np.column_stack([columns, self.sums.apart(columns[:, :-1])])

    def rare_ones(self, x: Floats) -> tuple[Array, Array]:
        """Which rows, (n, P), have a combination of values that fewer have, (n,), and the places of these columns."""
        found = combinations_of(x, grids=False) if self.alike > 1 else None
        if found is None:
            return np.zeros(len(x), dtype=np.bool_), np.empty(0, dtype=np.int64)
        return found.rare(self.alike), found.columns


ANY_NUMBER = Fewest()


class RoundRows:
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
        self.lost: set[int] = set()
        """Marks of rows that the job leaves out."""
        self._far = self._repeated = self._rare = self._near = 0
        self.x: list[Floats] = []
        self.numbers: list[int] = []
        self.y: list[float] = []
        self.told: list[float] = []
        self.marks: list[int] = []

    def read(self, chunk: Chunk) -> list[tuple[RowFault, str]]:
        """Take rows that were read; returns what is wrong with targets alone, and where these stand."""
        self.position = chunk.position
        self.faults.update(chunk.faults)
        self.changes.update(chunk.changes)
        self.waits_for_disk = chunk.waits_for_disk
        self.lost.update(chunk.lost)
        return [(fault, row.where) for row in chunk.rows if (fault := self.add(row)) is not None]

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
            self._leave_out_far(row)
            return
        scaled = earlier.x if row.x is None and earlier is not None else self._within(np.asarray(row.x))
        if scaled is None or (row.y is not None and not self._limits.target(row.y)):
            self._leave_out_far(row)
            return
        if row.y is None:
            self.waiting[str(row.key)] = Waiting(scaled, self._predict(scaled))
            return
        of_table = row.number >= 0 and row.x is not None  # is scaled with its block
        self.x.append(np.asarray(row.x) if of_table else scaled)
        self.numbers.append(row.number if of_table else -1)
        self.y.append(row.y)
        self.told.append(math.nan if earlier is None else earlier.told)
        self.marks.append(row.mark)

    def _leave_out_far(self, row: Row) -> None:
        self._far += 1
        self.lost.add(row.mark)

    def has_few(self, places: Sequence[int], fewest: Fewest) -> bool:
        """Whether fewer rows than that, of some by their places, stand out, or are alike."""
        return len(places) > 0 and bool(fewest.blames(self._columns(places)).any())

    def without_few(self, places: Sequence[int], fewest: Fewest) -> list[int]:
        """Leave out rows that stand out, or are alike, where fewer than that do, and those that then do."""
        left = list(places)
        while self.has_few(left, fewest):
            kept = np.flatnonzero(fewest.stay(self._columns(left)))
            self._rare += len(left) - len(kept)
            left = [left[i] for i in kept]
        return left

    def keep(self, places: Sequence[int], num_near: int) -> None:
        """Keep rows by their places, and count so many of the others as near ones of other jobs."""
        self._near += num_near
        self.x, self.numbers = [self.x[i] for i in places], [self.numbers[i] for i in places]
        self.y, self.told = [self.y[i] for i in places], [self.told[i] for i in places]

    def _columns(self, places: Sequence[int]) -> Floats:
        return np.column_stack([np.array([self.x[i] for i in places]), np.array([self.y[i] for i in places])])

    def _within(self, x: Floats) -> Floats | None:
        with np.errstate(over="ignore"):
            scaled = self._scaled(x)
        return scaled if self._limits.row(scaled) else None

    def taken(self, ended: bool) -> Taken:
        """All of it."""
        left_out = self._before.and_more(
            self.faults, self.changes, far=self._far, repeated=self._repeated, rare=self._rare, near=self._near
        )
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
