"""Notes on the rows of streams: those that clients left out, and those that do not come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kernfed_server.jobs.run import Run

_TIMES_WITHOUT_ROWS = 3


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
        """Rows left out so far for a value that is missing or not a number."""
        ...

    @property
    def num_far(self) -> int:
        """Rows left out so far that lie too far beyond the agreed ranges."""
        ...

    @property
    def num_repeated(self) -> int:
        """Rows left out so far since one with their key waits for its target."""
        ...

    @property
    def num_failed(self) -> int:
        """Rows passed over so far since their step failed twice."""
        ...


class LeftOutNotes:
    """Tells of rows that clients left out; not of each, but whenever their number has doubled."""

    def __init__(self, run: Run, outlier_spans: float) -> None:
        self._run = run
        self._spans = outlier_spans
        self._told: dict[tuple[str, str], int] = {}

    def note(self, replies: Mapping[str, StreamReply]) -> None:
        """Look at what clients counted."""
        for client, reply in replies.items():
            self._count(client, reply.num_skipped, "a value is faulty")
            self._count(
                client,
                reply.num_far,
                f"they lie more than {self._spans:g} spans beyond the agreed ranges, or outside of data.ranges; "
                "correct them, or give method.target_range, method.row_norm or method.outlier_spans",
            )
            self._count(
                client, reply.num_repeated, "a row with the same key waited for its target; give each row its own key"
            )
            self._count(
                client, reply.num_failed, "learning from them failed twice; the client's log tells what is wrong"
            )

    def _count(self, client: str, num_rows: int, why: str) -> None:
        if num_rows > 2 * self._told.get((client, why), 0):
            rows = "1 row" if num_rows == 1 else f"{num_rows} rows"
            self._run.note(f"{client} left out {rows} of its stream so far: {why}")
            self._told[client, why] = num_rows


class EmptyStreams:
    """Tells for which clients' rows a job waits, once each time that nobody has had any for a while."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._times = 0

    def note(self, asked: Sequence[str], *, rows: bool) -> None:
        """Look at a question: whom it went to, and whether anybody had rows."""
        self._times = 0 if rows else self._times + 1
        if self._times == _TIMES_WITHOUT_ROWS:
            self._run.note(f"waiting for rows of {', '.join(asked)}")
