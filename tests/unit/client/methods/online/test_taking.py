"""A round's rows: as many as the policy asks for of each kind of row, or none of it."""

from __future__ import annotations

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.maths.few.sums import SparseSums, sums_of
from kernfed.methods.online.learner import Learner, LearnerRules, Mixing
from kernfed.methods.online.losses import Loss
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.methods.online.round_rows import Fewest, Limits, Taken
from kernfed_client.methods.online.state import ClientState, LeftOut
from kernfed_client.methods.online.taking import RowTaker
from kernfed_client.streams.streams import TableStream

LEAST = 10


def marked(num: int, every: int) -> PartitionData:
    """Rows of a number, a mark that one row of so many has, and a target."""
    draw = np.random.default_rng(3)
    x = np.column_stack([draw.normal(size=num), (np.arange(num) % every == every - 1).astype(float)])
    return PartitionData(x, None, draw.normal(size=num), 0, np.arange(2, num + 2))


def rounds(
    table: PartitionData,
    fewest_apart: int,
    num: int = 200,
    batch_rows: int = 1,
    most_rows: int = 64 * LEAST,
    fewest_alike: int = 1,
    sums: SparseSums | None = None,
) -> list[Taken]:
    """What a client takes of a table, round after round, to its end."""
    limits = Limits(np.inf, -np.inf, np.inf)
    taker = RowTaker(
        TableStream(table),
        lambda x: x,
        LEAST,
        limits,
        fewest=Fewest(fewest_apart, fewest_alike, sums),
        most_rows=most_rows,
    )
    rules = LearnerRules(Mixing.UNIFORM, Loss.SQUARED, 0.0, 1, 1.0, 0.0, 0.0, 1.0, False)
    state = ClientState(0, 0, "", {}, LeftOut(), Learner.start(rules, 1), np.zeros((1, 1)), -1, {}, {})
    found = []
    for _ in range(num):
        taken = taker.take(state, batch_rows, 0.0, lambda _: 0.0)
        found.append(taken)
        state = ClientState(0, 0, "", taken.position, taken.left_out, state.learner, state.theta, -1, taken.waiting, {})
        if taken.ended:
            return found
    raise AssertionError("the stream does not end")


def marks(taken: Taken) -> Floats:
    """Of the rows of a round."""
    return np.array([row[1] for row in taken.x])


@pytest.mark.parametrize("every", [2, 5, 20])
def test_a_round_grows_until_enough_rows_have_a_mark(every: int) -> None:
    """Each has at least ten with it and ten without, or none with it; without the rule some have a few."""
    found = [marks(taken) for taken in rounds(marked(1200, every), LEAST)]
    assert all(min(m.sum(), len(m) - m.sum()) >= LEAST or not m.any() for m in found if len(m))
    assert sum(map(len, found)) >= 1200 - LEAST * every
    assert sum(m.sum() for m in found) > 0
    assert any(0 < m.sum() < LEAST for m in map(marks, rounds(marked(1200, every), 1)))


def test_rows_of_a_mark_that_hardly_any_has_are_left_out_and_counted() -> None:
    """A round that begins with one of them grows to 640 rows, of which four have it: the others are learned."""
    found = rounds(marked(790, 160), LEAST)
    assert [len(taken.y) for taken in found] == [10] * 15 + [636]
    assert not any(marks(taken).any() for taken in found)
    assert [taken.left_out.rare for taken in found] == [0] * 15 + [4]


def test_a_live_stream_keeps_rows_for_later() -> None:
    """Few with a mark are left where they are until more came."""

    class Live(TableStream):
        live = True

        def ended(self, position: object) -> bool:
            """It never does."""
            return False

    table = marked(400, 8)
    limits = Limits(np.inf, -np.inf, np.inf)
    rules = LearnerRules(Mixing.UNIFORM, Loss.SQUARED, 0.0, 1, 1.0, 0.0, 0.0, 1.0, False)
    state = ClientState(0, 0, "", {}, LeftOut(), Learner.start(rules, 1), np.zeros((1, 1)), -1, {}, {})
    for num, taken_now in ((30, 0), (400, 80)):
        taker = RowTaker(
            Live(table.take(np.arange(num))), lambda x: x, LEAST, limits, fewest=Fewest(LEAST), most_rows=640
        )
        assert len(taker.take(state, 1, 0.0, lambda _: 0.0).y) == taken_now


@pytest.mark.parametrize(("batch_rows", "sizes"), [(1, [10] * 6), (11, [10] * 6), (19, [10] * 6), (25, [20] * 3)])
def test_rounds_have_whole_multiples_of_the_least_number(batch_rows: int, sizes: list[int]) -> None:
    """Those of two jobs with other `batch_rows` differ by so many rows or none; what is left at the end is no round."""
    assert [len(taken.y) for taken in rounds(marked(65, 65), 1, batch_rows=batch_rows) if len(taken.y)] == sizes


def test_a_live_stream_gives_whole_multiples() -> None:
    """Of 37 rows that are there, and 50 wanted, thirty are taken; seven wait for others."""

    class Live(TableStream):
        live = True

        def ended(self, position: object) -> bool:
            """It never does."""
            return False

    limits = Limits(np.inf, -np.inf, np.inf)
    rules = LearnerRules(Mixing.UNIFORM, Loss.SQUARED, 0.0, 1, 1.0, 0.0, 0.0, 1.0, False)
    state = ClientState(0, 0, "", {}, LeftOut(), Learner.start(rules, 1), np.zeros((1, 1)), -1, {}, {})
    taken = RowTaker(Live(marked(37, 37)), lambda x: x, LEAST, limits).take(state, 50, 0.0, lambda _: 0.0)
    assert (len(taken.y), taken.position) == (30, {"row": 30})


def test_a_round_grows_to_what_the_coordinator_believes() -> None:
    """A client that stated sixty rows answers no round of more, though few of them have a mark."""
    found = rounds(marked(400, 8), LEAST, most_rows=60)
    assert max(len(taken.y) for taken in found) <= 60
    assert sum(len(taken.y) for taken in found) > 300


def test_a_round_has_enough_rows_of_each_combination() -> None:
    """Of the eight combinations of three marks; without the rule rounds of ten rows have a few of each."""
    draw = np.random.default_rng(5)
    x = (draw.uniform(size=(1200, 3)) < 0.5).astype(np.float64)
    table = PartitionData(x, None, draw.normal(size=1200), 0, np.arange(2, 1202))
    for alike, fewest in ((LEAST, LEAST), (1, 1)):
        found = [np.array(taken.x) for taken in rounds(table, 1, fewest_alike=alike) if len(taken.y)]
        counts = [np.unique(rows, axis=0, return_counts=True)[1].min() for rows in found]
        assert min(counts) >= fewest
        assert (min(counts) < LEAST) == (alike == 1)
        assert sum(map(len, found)) > 1100


def test_a_round_has_enough_rows_in_which_two_columns_differ() -> None:
    """Each column has many ones, and they differ in one row of a dozen; without the sums rounds have one or two."""
    draw = np.random.default_rng(6)
    differs = np.arange(1200) % 12 == 11
    half = (draw.uniform(size=1200) < 0.5) & ~differs
    x = np.column_stack([draw.normal(size=1200), half, half | differs]).astype(np.float64)
    table = PartitionData(x, None, draw.normal(size=1200), 0, np.arange(2, 1202))
    for sums in (sums_of(x, LEAST), None):
        found = [np.array(taken.x) for taken in rounds(table, LEAST, sums=sums) if len(taken.y)]
        apart = [int((rows[:, 1] != rows[:, 2]).sum()) for rows in found]
        assert any(0 < num < LEAST for num in apart) == (sums is None)
        assert sum(map(len, found)) > 1050
        assert sum(apart) > 0


def test_few_rows_in_which_two_columns_differ_are_left_out() -> None:
    """Where hardly any rows do, a round that cannot grow further is learned without them."""
    draw = np.random.default_rng(7)
    differs = np.isin(np.arange(800), np.arange(3, 800, 60))
    half = (draw.uniform(size=800) < 0.5) & ~differs
    x = np.column_stack([draw.normal(size=800), half, half | differs]).astype(np.float64)
    table = PartitionData(x, None, draw.normal(size=800), 0, np.arange(2, 802))
    found = rounds(table, LEAST, sums=sums_of(x, LEAST), most_rows=200)
    apart = [int((rows[:, 1] != rows[:, 2]).sum()) for taken in found if len(rows := np.array(taken.x))]
    assert not any(0 < num < LEAST for num in apart)
    assert found[-1].left_out.rare == 14 - sum(apart)
    assert sum(len(taken.y) for taken in found) > 700
