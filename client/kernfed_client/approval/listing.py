"""The site's jobs for people and programs: the list, one job with its plan, and a word on one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernfed.errors import ConfigError, JobError, PolicyError
from kernfed.jobs.client_file import ClientFile, load_client_file
from kernfed.jobs.job_file import JobFile, parse_job
from kernfed.wording import clean
from kernfed_client.approval import job_plan
from kernfed_client.approval.book import MAX_WHY, Book, Entry, State, Word, find
from kernfed_client.approval.job_plan import JobPlan, plan_of
from kernfed_client.daemon.audit_report import NOT_PROVEN
from kernfed_client.daemon.policy import Policy

_WHEN = 19
"""Characters of a time in tables: to the second."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job as people see it."""

    job: str
    name: str
    method: str
    operator: str
    proven: bool
    """Whether its operator signed it; else name, method and operator are the coordinator's word."""
    since: str
    last: str
    state: State
    began: str
    over: str
    why_over: str
    plan: str
    known: bool
    """Whether its plan was approved for good."""
    said: list[dict[str, Any]]
    """What people decided, in order."""


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job, and what it would send."""

    job: ListedJob
    plan: JobPlan | None
    """None: the job is not signed, or this release cannot read its file."""
    cannot: str
    """Why there is no plan; empty: there is one."""
    refused: str
    """Why the policy here refuses the job as a whole; empty: it does not, as far as the file tells."""


def jobs(config: Path) -> list[ListedJob]:
    """All jobs of a client, those that asked first ahead.

    Args:
        config: Client file.

    Raises:
        ConfigError: The client file is wrong, or the state folder is another user's.
    """
    file = load_client_file(config)
    book = Book(file.state)
    return [_listed(entry, book, file) for entry in book.entries()]


def show(config: Path, job: str) -> ShownJob:
    """One job, and what it would send.

    Args:
        config: Client file.
        job: Its id, the beginning of it, or its name.

    Raises:
        UnknownJobError: None asked for anything, or several are meant.
        ConfigError: As `jobs`.
    """
    file = load_client_file(config)
    book = Book(file.state)
    entry = find(book.entries(), job)
    listed, parsed, cannot = _listed(entry, book, file), None, "its operator did not sign it, so nobody knows"
    if entry.job_toml:
        parsed, cannot = _parsed(entry)
    if parsed is None:
        return ShownJob(listed, None, cannot, "")
    return ShownJob(listed, plan_of(parsed, file.policy, entry.operator), "", _refused(file, parsed, entry))


def decide(config: Path, job: str, word: Word, why: str, *, remember: bool = False) -> ListedJob:
    """Say a word on a job, for whoever runs this process.

    Args:
        config: Client file.
        job: Its id, the beginning of it, or its name.
        word: What becomes of it.
        why: The reason; empty: none is given.
        remember: See `Book.decide`.

    Raises:
        UnknownJobError: None asked for anything, or several are meant.
        JobError: The word means nothing for the job as it is.
        ConfigError: As `jobs`, or a reason is too long.
    """
    file = load_client_file(config)
    book = Book(file.state)
    if len(why) > MAX_WHY or not why.isprintable():
        raise ConfigError(f"--why takes one line of at most {MAX_WHY} characters")
    entry = find(book.entries(), job)
    now = _listed(entry, book, file)
    if now.state is State.OVER:
        raise JobError(f"job {entry.job} is over, so there is nothing to {word.value}; `kernfed-client jobs` lists all")
    if word is Word.RESUME and now.state is not State.PAUSED:
        raise JobError(f"job {entry.job} is not paused (it {_STANDS[now.state]}); there is nothing to resume")
    if word is Word.PAUSE and now.state is State.REFUSED:
        raise JobError(f"job {entry.job} is refused; nothing of it leaves")
    if remember and not entry.plan:
        raise JobError(f"job {entry.job} is not signed by its operator, so there is no plan to remember")
    book.decide(entry, word, why, remember=remember)
    return _listed(entry, book, file)


_STANDS = {
    State.ASKS: "asks for approval",
    State.RUNS: "runs",
    State.PAUSED: "is paused",
    State.REFUSED: "is refused",
    State.OVER: "is over",
}


def _listed(entry: Entry, book: Book, file: ClientFile) -> ListedJob:
    decided, known = book.decided(entry.job).of(entry.submission), book.knows(entry.plan)
    return ListedJob(
        job=entry.job,
        name=entry.name,
        method=entry.method,
        operator=entry.operator,
        proven=bool(entry.submission),
        since=entry.since,
        last=entry.last,
        state=entry.state(decided, known=known and file.policy.approve == "known"),
        began=entry.began,
        over=entry.over,
        why_over=entry.why_over,
        plan=entry.plan,
        known=known,
        said=[
            {"decision": said.word.value, "user": said.user, "when": said.when, "why": said.why}
            for said in decided.words
        ],
    )


def _parsed(entry: Entry) -> tuple[JobFile | None, str]:
    try:
        return parse_job(entry.job_toml, "the signed job file", accepted=True), ""
    except ConfigError as err:
        return None, str(err)


def _refused(file: ClientFile, job: JobFile, entry: Entry) -> str:
    named = job.cohort.clients
    try:
        Policy(file.policy).check_job(job, entry.operator, named[0] if named else "")
    except PolicyError as err:
        return str(err)
    return ""


def list_json(found: list[ListedJob]) -> list[dict[str, Any]]:
    """Jobs as JSON types."""
    return [_json(job) for job in found]


def _json(job: ListedJob) -> dict[str, Any]:
    told = {name: getattr(job, name) for name in ListedJob.__slots__}
    return told | {"state": job.state.value}


def show_json(found: ShownJob) -> dict[str, Any]:
    """A job as JSON types."""
    plan = None if found.plan is None else job_plan.as_json(found.plan)
    return {**_json(found.job), "what_leaves": plan, "cannot_tell": found.cannot, "policy_refuses": found.refused}


def list_table(found: list[ListedJob]) -> RenderableType:
    """Jobs for people."""
    if not found:
        return Text("no job has asked this client for anything yet")
    table = Table("job", "method", "operator", "since (UTC)", "state")
    for job in found:
        table.add_row(
            *(Text(clean(cell)) for cell in (job.job, job.method, _operator(job), _when(job.since), job.state))
        )
    asking = [job.job for job in found if job.state is State.ASKS]
    hint = f"`kernfed-client jobs show {clean(asking[0])}` says what it would send" if asking else ""
    return Group(table, *([Text(f"{len(asking):,} ask for approval: {hint}")] if asking else []))


def show_table(found: ShownJob) -> RenderableType:
    """A job for people."""
    job = found.job
    head = Table.grid(padding=(0, 2))
    for name, told in (
        ("job", job.job),
        ("operator", _operator(job)),
        ("method", job.method),
        ("state", job.state.value),
        ("asked first", _when(job.since)),
        ("asked last", _when(job.last)),
        ("began", _when(job.began)),
        ("over", f"{_when(job.over)} {job.why_over}".strip()),
        ("its plan", "was approved for good" if job.known else ""),
    ):
        if told:
            head.add_row(Text(name), Text(clean(told)))
    said = [Text(clean(f"{_when(s['when'])}: {s['decision']} by {s['user']}{_because(s['why'])}")) for s in job.said]
    if found.plan is None:
        return Group(head, *said, Text(clean(f"what it would send is not known: {found.cannot}")))
    refused = [Text(clean(f"the policy here refuses this job: {found.refused}"))] if found.refused else []
    return Group(head, *said, job_plan.as_table(found.plan), *refused)


def _operator(job: ListedJob) -> str:
    return job.operator if job.proven else f"{job.operator}{NOT_PROVEN}"


def _because(why: str) -> str:
    return f" ({why})" if why else ""


def _when(stamp: str) -> str:
    return stamp[:_WHEN].replace("T", " ")
