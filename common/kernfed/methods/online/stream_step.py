"""What every round of a stream asks, and what every answer to one tells of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Dim, MaxLength, Message, R_co, Range, Reply, Request, Shape, Whole

Count = Annotated[int, Range(0, 2**53)]

GROWN = 4
"""So many times its rows, and a round is told to have grown."""


def rows_of_round(batch_rows: int, least_rows: int) -> int:
    """Rows of a client in a round: `batch_rows` rounded down to a multiple of its policy's least number, at least that.

    So the rounds of two jobs on one stream differ by so many rows, or by none.
    """
    return max(least_rows, batch_rows - batch_rows % least_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTold(Message):
    """What a client met in its stream so far, by kind. The first six make up `num_skipped` of a step."""

    text: Count = 0
    """Rows with text, or no finite number, where a number is needed."""
    gap: Count = 0
    """Rows without a value."""
    width: Count = 0
    """Lines with another number of cells than their header."""
    no_key: Count = 0
    """Targets for which no row waits."""
    twice: Count = 0
    """Targets of rows that had one."""
    unanswered: Count = 0
    """Rows whose target did not come before too many others waited."""
    rotated: Count = 0
    """Files that were renamed or copied, and read to their end before the one that has their name now."""
    replaced: Count = 0
    """Files that shrank or became others, the former ones being gone: rows at their end may be missing."""
    header: Count = 0
    """Lines that name the columns again, in another order."""
    behind: Count = 0
    """Times that the coordinator had counted rows which this client's state did not know, and it learned them again."""
    ahead: Count = 0
    """Times that the coordinator fell back behind all states that this client keeps: it does not learn again what came
    after."""
    waits_for_disk: bool = False
    """Whether there are rows at hand that the client cannot write down, now."""
    rare: Count = 0
    """Rows that stood out in a column, or by their target, among many of which fewer did than the client's policy lets
    a number stand for."""
    near: Count = 0
    """Rows left out, since with them the job and earlier ones would tell about fewer rows than its policy lets a number
    stand for."""


Told = Annotated[tuple[StreamTold, ...], MaxLength(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep(Reply):
    """Of the rows behind an answer, and of those that are not."""

    num_samples: Count
    """Rows with targets that were learned from; 0: there was none, and what was learned is empty."""
    ended: bool
    """Whether the stream has no more rows."""
    needs_whole: bool
    """The client does not hold the parameters that the request builds on; send all of them. Never set where every
    request brings all."""
    num_waiting: Count
    """Rows that were predicted and wait for their target."""
    num_skipped: Count
    """Rows left out so far, for a value that is missing or not a number."""
    num_far: Count = 0
    """Rows left out so far, for a number too far beyond the agreed ranges."""
    num_repeated: Count = 0
    """Rows without target left out so far, since a row with the same key waited for its target."""
    num_failed: Count = 0
    """Rows passed over so far, since learning from them failed twice."""
    told: Told = ()
    """More of this stream, where there is more to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStepRequest(Request[R_co]):
    """Take what the round brings, predict and learn the next rows, and answer with what was learned."""

    once = True

    round_num: Count
    """The round."""
    batch_rows: Annotated[int, Range(1, 100_000)]
    """Most rows to learn from; a client whose policy wants more takes that many."""
    wait_s: Annotated[float, Range(0, 60)]
    """Seconds for which to wait for a row where there is none."""
    uncounted_from: Count = 0
    """Round from which on no rows of this client counted: what it learned there it learns again; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStepRequest(StreamStepRequest[R_co]):
    """A round that brings the parameters of kernels which moved."""

    base: Annotated[int, Range(-1, 2**53)]
    """Round whose request brought the parameters that these complete; -1: these are all."""
    num_features: Annotated[int, Dim("F"), Range(1, 2_000_000)]
    """Features F = 2 D of each kernel."""
    kernels: Annotated[Array, Shape("A"), Whole()]
    """Numbers of the kernels that moved, uint8."""
    theta: Annotated[Array, Shape("A", "F")]
    """Their parameters."""
