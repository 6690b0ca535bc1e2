"""The daemon's half of the site's say: each job is noted, and waits, runs or is refused as people here decided.

For any thread. A decision has its line in the audit log before anything follows from it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import structlog

from kernfed.errors import ApprovalError, ConfigError, PolicyError, SiteRefusedError, UnavailableError
from kernfed.v1 import task_pb2
from kernfed.wording import clean
from kernfed_client.approval.book import MAX_WHY, Book, Decided, Decision, Entry, State, Word
from kernfed_client.approval.plan_digest import digest_of
from kernfed_client.daemon.operators.submissions import SignedJob

log = structlog.get_logger(__name__)

Approve = Literal["all", "known", "manual"]

MAX_JOBS, MAX_BYTES = 500, 64 << 20
"""Jobs in the book, and bytes of it; those that are over go first."""
MAX_ASKING = 20
"""Jobs of one operator that ask at a time."""
FORGOTTEN = timedelta(days=7)
"""A job that did not ask for so long ended while this client was away, as far as is known here."""
_NOTED_EVERY = timedelta(minutes=1)

KNOWN_PLAN = "known plan"
"""Who lets a job run whose plan was approved for good, in the audit log."""


@dataclass(frozen=True, slots=True)
class News:
    """A job on which the coordinator may be told something."""

    job_id: str
    refused: bool
    """Whether nothing of it may leave any more."""


class Approvals:
    """Lets jobs through, or holds them up."""

    def __init__(
        self,
        book: Book,
        approve: Approve,
        record: Callable[[Entry, Decision], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Take the book as an earlier life left it.

        Args:
            book: Of the state folder.
            approve: Of the policy.
            record: Writes a decision into the audit log; raises OSError where the disk takes nothing.
            now: Clock.
        """
        self._book = book
        self._approve = approve
        self._record = record
        self._now = now
        self._lock = threading.RLock()
        self._entries = {entry.job: entry for entry in book.entries()}
        self._bytes = {job: len(entry.job_toml) for job, entry in self._entries.items()}
        self._decided: dict[str, tuple[tuple[int, ...], Decided | None]] = {}
        """What was said of jobs, with its mark; None: it cannot be read."""
        self._waiting: set[str] = set()
        """Jobs that the coordinator was told to wait with."""
        self._refused: set[str] = set()
        """Jobs of which it is known that nothing may leave."""

    def admit(self, task: task_pb2.Task, job: SignedJob | None, *, answered: bool = False) -> None:
        """Let a task through.

        Args:
            task: That the policy allows.
            job: Its job, as its operator signed it; None: it is not signed.
            answered: Whether it is computed, and its reply is about to leave: then a pause holds nothing up.

        Raises:
            ApprovalError: Its job waits for somebody here.
            SiteRefusedError: Somebody here refused its job.
            PolicyError: Too many jobs ask, or another job had this id.
            OSError: The disk takes no line of the audit log, or no note.
        """
        with self._lock:
            entry = self._noted(task, job)
            state, decided = self._judge(entry)
            if state is State.REFUSED:
                said = decided and decided.last(Word.REFUSE)
                why = clean(said.why)[:MAX_WHY] if said else ""
                raise SiteRefusedError(f"people at this site refused the job{f': {why}' if why else ''}")
            if answered and state is not State.ASKS and decided is not None:
                return
            if state is State.PAUSED:
                self._waiting.add(entry.job)
                raise ApprovalError("people at this site pause the job; it goes on by itself when they resume it")
            if state is State.ASKS:
                self._waiting.add(entry.job)
                raise ApprovalError(
                    "people at this site approve each job before anything of it is answered, and they have not "
                    "approved this one yet; it goes on by itself when they do"
                )
            self._waiting.discard(entry.job)
            if not entry.began:
                self._begin(entry, decided)

    def held(self, job_id: str) -> bool:
        """Whether a job waits for somebody here, as far as is known without a look at the disk."""
        with self._lock:
            return job_id in self._waiting

    def knows(self, job_id: str) -> bool:
        """Whether a job was let through the gate, and is not over: else each of its tasks goes through it again."""
        with self._lock:
            entry = self._entries.get(job_id)
            return entry is not None and not entry.over

    def withholds(self, job_id: str) -> bool:
        """Whether no reply of a job may leave now: it is refused, or the audit log lacks words that were said of it."""
        with self._lock:
            entry, seen = self._entries.get(job_id), self._decided.get(job_id)
            try:
                mark = self._book.mark(job_id)
            except OSError:
                return True
            if entry is None or seen is None or seen[0] != mark:
                return bool(mark)
            if (decided := seen[1]) is None:
                return True
            unheard = bool(decided.words) and decided.words[-1].number > entry.told
            return unheard or entry.state(decided, known=False) is State.REFUSED

    def over(self, job_id: str, why: str) -> None:
        """The coordinator ended a job."""
        with self._lock:
            self._waiting.discard(job_id)
            self._refused.discard(job_id)
            entry = self._entries.get(job_id)
            if entry is None or entry.over:
                return
            log.info("job ends", job_id=job_id, operator=entry.operator, began=entry.began, why=clean(why)[:MAX_WHY])
            self._note(replace(entry, over=self._stamp(), why_over=clean(why)[:MAX_WHY]), lenient=True)

    def news(self) -> list[News]:
        """Look for decisions on jobs that are not over; gives the jobs of which the coordinator is to hear.

        Raises:
            OSError: The disk takes no line of the audit log, or no note.
        """
        found = []
        with self._lock:
            # All are judged before anything is told: where the log takes no line, no news is lost.
            for entry, state in [(e, self._judge(e)[0]) for e in list(self._entries.values()) if not e.over]:
                newly = state is State.REFUSED and entry.job not in self._refused
                if newly:
                    self._refused.add(entry.job)
                if newly or (entry.job in self._waiting and state not in (State.ASKS, State.PAUSED)):
                    self._waiting.discard(entry.job)
                    found.append(News(entry.job, state is State.REFUSED))
        return found

    def _judge(self, entry: Entry) -> tuple[State, Decided | None]:
        """What becomes of a job now; words of which the log did not hear yet are told it first."""
        mark, known = self._book.mark(entry.job), self._approve == "known" and self._book.knows(entry.plan)
        before = self._decided.get(entry.job)
        if before is None or before[0] != mark:
            before = self._decided[entry.job] = mark, self._read(entry)
        decided = before[1]
        if decided is None:
            return State.PAUSED, None
        for said in decided.words:
            if said.number > self._entries[entry.job].told:
                self._record(entry, said)
                log.info("decided", job_id=entry.job, word=said.word.value, user=said.user, why=clean(said.why))
                self._note(replace(self._entries[entry.job], told=said.number))
        return replace(entry, over="").state(decided, known=known), decided

    def _read(self, entry: Entry) -> Decided | None:
        try:
            decided = self._book.decided(entry.job)
        except ConfigError as err:  # what was said may have been a refusal
            log.error("a job waits, for what was decided on it cannot be read", job_id=entry.job, error=str(err))
            return None
        return decided.of(entry.submission)

    def _noted(self, task: task_pb2.Task, job: SignedJob | None) -> Entry:
        """The job of a task in the book, where it is put at its first task."""
        submission, now = "" if job is None else job.signed.sha256.hex(), self._now()
        entry = self._entries.get(task.job_id)
        if entry is not None and entry.submission not in ("", submission):
            raise PolicyError("another job had this id here, which its operator signed otherwise; submit the job again")
        asks = self._approve != "all"
        if entry is None or entry.submission != submission:
            entry = self._new(task, job, submission)
            self._make_room(entry)
            self._decided.pop(entry.job, None)
            self._note(entry)
            self._tell_asks(entry)
        elif entry.over:  # it runs again
            decided = self._read(entry)
            ended = decided.words[-1].number if decided is not None and decided.words else entry.told
            self._note(
                replace(
                    entry,
                    over="",
                    why_over="",
                    began="",
                    asks=asks,
                    ended=ended,
                    since=self._stamp(),
                    last=self._stamp(),
                )
            )
            self._tell_asks(self._entries[entry.job])
        elif entry.asks != asks or now - datetime.fromisoformat(entry.last) > _NOTED_EVERY:
            self._note(replace(entry, asks=asks, last=self._stamp()))
        return self._entries[task.job_id]

    def _tell_asks(self, entry: Entry) -> None:
        if entry.asks and not (self._approve == "known" and self._book.knows(entry.plan)):
            log.warning(
                "a job asks to run here",
                job_id=entry.job,
                operator=entry.operator,
                method=entry.method,
                look=f"kernfed-client jobs show {entry.job}",
            )

    def _new(self, task: task_pb2.Task, job: SignedJob | None, submission: str) -> Entry:
        file = None if job is None else job.file
        now = self._stamp()
        return Entry(
            job=task.job_id,
            name=task.job_id.rpartition("-")[0] if file is None else file.name,
            method=task.method,
            operator=task.submitted_by,
            submission=submission,
            plan="" if file is None else digest_of(file, task.submitted_by),
            job_toml="" if job is None else job.text,
            since=now,
            last=now,
            asks=self._approve != "all",
        )

    def _make_room(self, new: Entry) -> None:
        """Let go of jobs that are over; where there are too many others, refuse this one."""
        since = self._now() - FORGOTTEN
        live = [e for e in self._entries.values() if not e.over and datetime.fromisoformat(e.last) > since]
        asking = [e for e in live if e.operator == new.operator and e.asks and not e.began]
        if new.asks and len([e for e in asking if self._judge(e)[0] is State.ASKS]) >= MAX_ASKING:
            raise PolicyError(
                f"{MAX_ASKING} jobs of this operator ask for approval at this site already; let people there decide, "
                "or cancel some of them"
            )
        kept = {entry.job for entry in live}
        gone = sorted((e for e in self._entries.values() if e.job not in kept), key=lambda e: e.last)
        while len(self._entries) >= MAX_JOBS or sum(self._bytes.values()) + len(new.job_toml) > MAX_BYTES:
            if not gone:
                raise PolicyError("more jobs are under way at this site than it keeps a book of; cancel some of them")
            self._forget(gone.pop(0).job)

    def _forget(self, job_id: str) -> None:
        self._book.forget(job_id)
        for kept in (self._entries, self._bytes, self._decided):
            kept.pop(job_id, None)

    def _begin(self, entry: Entry, decided: Decided | None) -> None:
        by_plan = entry.asks and (decided is None or entry.approval(decided) is None)
        if by_plan:  # nobody said a word on this job
            self._record(entry, Decision(0, Word.APPROVE, KNOWN_PLAN, KNOWN_PLAN, self._stamp()))
        log.info("job begins", job_id=entry.job, operator=entry.operator, method=entry.method, by_known_plan=by_plan)
        self._note(replace(self._entries[entry.job], began=self._stamp()))

    def _note(self, entry: Entry, *, lenient: bool = False) -> None:
        try:
            self._bytes[entry.job] = self._book.note(entry)
        except (OSError, UnavailableError) as err:
            if not lenient:
                raise
            log.warning("the book of jobs is not written", job_id=entry.job, error=str(err))
        self._entries[entry.job] = entry

    def _stamp(self) -> str:
        return self._now().isoformat(timespec="seconds")
