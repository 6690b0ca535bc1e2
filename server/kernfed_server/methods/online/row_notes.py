"""Notes on the rows of streams: those that clients left out, and those that do not come, from streams or clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kernfed.methods.online.stream_step import GROWN, StreamTold
from kernfed_server.jobs.run import Run

_TIMES_WITHOUT_ROWS = 3
REMEDY = (
    "`kernfed-client check-data` there names the columns: leave these out, or let its administrator set "
    'policy.sparse_columns or policy.few_values = "allow"'
)
_KINDS = {
    "text": "with text or no finite number in place of a number",
    "gap": "without a value",
    "width": "with another number of cells than the header",
    "no_key": "targets for which no row waits",
    "twice": "targets that came twice",
    "unanswered": "whose target did not come before too many waited",
}
_CHANGES = {
    "rotated": "a file of its stream was rotated, and read to its end before the new one",
    "replaced": "a file of its stream was cut off or replaced: the new one is read from its header, and rows at the "
    "end of the former one may be missing",
    "behind": "its state is older than the coordinator's, as after a restore from a backup: rows that were learned are "
    "learned again",
    "ahead": "the coordinator was restored from a backup that is older than the states that this client keeps: its "
    "rows since then are not in the model, and it does not learn them again",
    "header": "a line of its stream names the columns in another order, and holds for the rows below it",
}


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

    @property
    def told(self) -> tuple[StreamTold, ...]:
        """More of the stream, at most one."""
        ...


class LeftOutNotes:
    """Tells of rows that clients left out, and of files that changed; not of each, but whenever a number has doubled.

    Of a stream that waits for its client's disk it tells once, and again when it goes on.
    """

    def __init__(self, run: Run, outlier_spans: float) -> None:
        self._run = run
        self._spans = outlier_spans
        self._told: dict[tuple[str, str], int] = {}
        self._waiting: set[str] = set()

    def note(self, replies: Mapping[str, StreamReply]) -> None:
        """Look at what clients counted."""
        for client, reply in replies.items():
            told = reply.told[0] if reply.told else StreamTold()
            kinds = [f"{n} {words}" for kind, words in _KINDS.items() if (n := getattr(told, kind))]
            # Keyed by what does not change: the numbers of the kinds grow with the sum.
            self._count(client, reply.num_skipped, "a value is faulty", ", ".join(kinds))
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

            self._count(
                client,
                told.rare,
                "in a column, or by their target, fewer rows than its policy.min_rows stood out among very many; leave "
                "such columns out",
            )
            self._count(
                client,
                told.near,
                "earlier jobs on this stream used other rows of the same blocks, so both would tell about fewer rows "
                "than its policy.min_rows; use the columns, ranges and limits of an earlier job",
            )
            for kind, words in _CHANGES.items():
                self._changed(client, getattr(told, kind), words)
            self._disk(client, waits=told.waits_for_disk)

    def _count(self, client: str, num_rows: int, why: str, in_words: str = "") -> None:
        if num_rows > 2 * self._told.get((client, why), 0):
            rows = "1 row" if num_rows == 1 else f"{num_rows} rows"
            self._run.note(f"{client} left out {rows} of its stream so far: {in_words or why}")
            self._told[client, why] = num_rows

    def _changed(self, client: str, num_times: int, what: str) -> None:
        if num_times > 2 * self._told.get((client, what), 0):
            times = "" if num_times == 1 else f" ({num_times} times so far)"
            self._run.note(f"{client}: {what}{times}")
            self._told[client, what] = num_times

    def _disk(self, client: str, *, waits: bool) -> None:
        if waits and client not in self._waiting:
            self._waiting.add(client)
            self._run.note(f"{client}: its stream waits for disk; make space for its state folder")
        elif not waits and client in self._waiting:
            self._waiting.discard(client)
            self._run.note(f"{client}: its stream goes on, there is disk again")


class GrownRounds:
    """Tells of clients whose rounds have many times the rows that they should; again whenever these have doubled."""

    def __init__(self, run: Run, wanted: Mapping[str, int]) -> None:
        """Take the rows of a round, by the client, that its policy and the job ask for."""
        self._run = run
        self._told = {client: rows * GROWN // 2 for client, rows in wanted.items()}
        self._wanted = wanted

    def note(self, round_num: int, replies: Mapping[str, StreamReply]) -> None:
        """Look at the rows of a round that closes; nothing is told of one that joined later."""
        for client, reply in replies.items():
            if client in self._told and reply.num_samples >= 2 * self._told[client]:
                self._told[client] = reply.num_samples
                self._run.note(
                    f"{client} took {reply.num_samples:,} rows for round {round_num}, and not "
                    f"{self._wanted[client]:,}: of fewer, some that are fewer than its policy.min_rows stand out in a "
                    "column, by their target or by a combination of values, or an earlier job took these rows "
                    f"together. What all clients learn together moves once a round, so this job learns late. {REMEDY}"
                )


class Absences:
    """Tells which clients a round goes on without, since they have no session; of one that comes and goes ever less."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._times: dict[str, int] = {}
        self._absent: frozenset[str] = frozenset()

    def note(self, round_num: int, absent: frozenset[str]) -> None:
        """Look at who was not asked in a round that closes. Mostly costs nothing."""
        for client in sorted(absent - self._absent):
            times = self._times[client] = self._times.get(client, 0) + 1
            if times & (times - 1) == 0:
                again = "" if times == 1 else f" (the {times}. time)"
                self._run.note(f"{client} is not connected: round {round_num} goes on without it{again}")
        self._absent = absent


class EmptyStreams:
    """Tells for which clients' rows a job waits, once each time that nobody has had any for a while."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._times = 0

    def note(self, asked: Sequence[str], *, rows: bool) -> None:
        """Look at a question: whom it went to, and whether anybody had rows."""
        self._times = 0 if rows else self._times + 1
        if self._times == _TIMES_WITHOUT_ROWS:
            self._run.note(
                f"waiting for rows of {', '.join(asked)}; a client also waits for more of those of which fewer than "
                "its policy.min_rows stand out in a column"
            )
