"""Blocks of rows that jobs used together: no jobs on streams of the same rows add up to few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Array, Floats, Integers
from kernfed.methods.online.learner import Learner, LearnerRules, Mixing
from kernfed.methods.online.losses import Loss
from kernfed_client.data.guards.row_spans import tells_of_few
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.methods.online.round_rows import Fewest, Limits, Taken
from kernfed_client.methods.online.state import ClientState, LeftOut
from kernfed_client.methods.online.taking import RowTaker
from kernfed_client.streams.streams import TableStream
from kernfed_client.streams.used_rows import UsedRows

LEAST = 10
RULES = LearnerRules(Mixing.UNIFORM, Loss.SQUARED, 0.0, 1, 1.0, 0.0, 0.0, 1.0, False)
START = ClientState(0, 0, "", {}, LeftOut(), Learner.start(RULES, 1), np.zeros((1, 1)), -1, {}, {})


class Site:
    """A stream of rows, of which each is told by its number, and jobs on it one after another."""

    def __init__(self, state: Path, num: int = 600, *, guarded: bool = True) -> None:
        draw = np.random.default_rng(4)
        self.x: Floats = np.column_stack([draw.normal(size=num), np.arange(num) % 13 == 0]).astype(float)
        self.y: Floats = draw.normal(size=num)
        self.state, self.guarded = state, guarded
        self.told: list[Array] = []
        """Rows behind each answer, and behind all answers of a job."""

    def ask(
        self,
        rows: Sequence[int] | Integers | None = None,
        *,
        columns: int = 2,
        batch_rows: int = 1,
        without: Sequence[int] = (),
        rounds: int = 10_000,
    ) -> list[Taken]:
        """Run a job on rows of the stream, in an order; it leaves out some."""
        order = np.arange(len(self.x)) if rows is None else np.array(rows)
        x = np.where(np.isin(order, without)[:, None], np.inf, self.x[order, :columns])
        table = PartitionData(x, None, self.y[order], 0, order + 2)
        stream = TableStream(table, (), (order + 1_000_000).tolist())
        used = UsedRows(self.state) if self.guarded else None
        limits = Limits(100.0, -np.inf, np.inf)
        taker = RowTaker(stream, lambda x: x, LEAST, limits, fewest=Fewest(LEAST), most_rows=64 * LEAST, used=used)
        state, found = START, []
        for _ in range(rounds):
            taken = taker.take(state, batch_rows, 0.0, lambda _: 0.0)
            found.append(taken)
            state = replace(START, position=taken.position, left_out=taken.left_out)
            if taken.ended:
                break
        rounds_of = [order[list(taken.numbers)] for taken in found if len(taken.y)]
        self.told.extend([*rounds_of, np.concatenate([np.empty(0, np.int64), *rounds_of])])
        return found

    def tells_a_few(self) -> bool:
        """Whether what was told adds up to sums over fewer rows than LEAST."""
        sets = [rows for rows in self.told if len(rows)]
        return any(tells_of_few(rows, sets[:place], LEAST) for place, rows in enumerate(sets))


def learned(found: Sequence[Taken]) -> int:
    """Rows that a job learned."""
    return sum(len(taken.y) for taken in found)


ATTACKS: dict[str, list[dict[str, Any]]] = {
    "a limit": [{}, {"without": [203]}],
    "a limit, first": [{"without": [203]}, {}],
    "four limits": [{"without": w} for w in ([], [*range(40, 60)], [*range(59, 79)], [*range(40, 79)])],
    "larger batches": [{"columns": 1, "batch_rows": 10}, {"columns": 1, "batch_rows": 50, "without": [7, 58]}],
    "a copy with one row more": [{"rows": [*range(300)]}, {"rows": [*range(150), 599, *range(150, 300)]}],
    "a copy with one row less": [{"rows": [*range(300)]}, {"rows": [*range(150), *range(151, 300)]}],
    "a copy in another order": [{}, {"rows": np.random.default_rng(1).permutation(600), "batch_rows": 30}],
    "the end of the file alone": [{"columns": 1}, {"columns": 1, "rows": [*range(147, 600)]}],
    "another column": [{"columns": 1}, {"columns": 2}, {"columns": 2, "batch_rows": 170}, {"columns": 1}],
    "growing rounds": [{"columns": 2, "rows": [*range(n)], "batch_rows": 10 * k} for k, n in ((1, 600), (17, 597))],
}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_jobs_tell_of_few_rows(tmp_path: Path, attack: str, guarded: bool) -> None:
    """Each does without the guard; with it a job loses the blocks of which it leaves a row out."""
    site = Site(tmp_path, guarded=guarded)
    found = [site.ask(**job) for job in ATTACKS[attack]]
    assert site.tells_a_few() != guarded
    assert min(map(learned, found)) >= 170
    assert any(taken[-1].left_out.near for taken in found) == guarded


def test_a_job_again_learns_the_same_rows(tmp_path: Path) -> None:
    """A client that is started anew, and another batch, find the blocks of before."""
    site = Site(tmp_path)
    first, again, small = (site.ask(columns=1, batch_rows=rows) for rows in (20, 20, 10))
    assert [taken.numbers for taken in first] == [taken.numbers for taken in again]
    assert learned(small) == 600
    assert small[-1].left_out.near == 0


def test_a_job_goes_on_where_another_one_stopped(tmp_path: Path) -> None:
    """Rows behind those that were used so far are free, whatever was left out before."""
    site = Site(tmp_path)
    site.ask(columns=1, rounds=20, without=[3, 103])
    found = site.ask(columns=1)
    assert learned(found) == 590  # of the two that stand apart a block is made with no others
    assert not site.tells_a_few()
