"""`kernfed-client audit`: what left this site and what was refused, from the audit log alone; needs no network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernfed.errors import ConfigError, UnknownJobError
from kernfed.jobs.client_file import load_client_file
from kernfed.wording import clean
from kernfed_client.daemon.audit import AUDIT_FILE, DECIDED, REFUSED
from kernfed_client.daemon.audit_chain import END_FILE, digest, find_files, num_missing, read_line, verify

NOT_PROVEN = " (not proven)"


@dataclass
class KindPart:
    """Messages that left in a job under one combination of kinds."""

    kinds: list[str]
    """Kinds that each of these replies carried; empty: they say nothing of the data."""
    steps: list[str]
    """Wire names of the steps that were answered, sorted."""
    replies: int = 0
    bytes: int = 0
    """Size of the replies as sent, headers included."""
    numbers: int = 0
    """Numbers in the replies' arrays."""


@dataclass
class RefusedPart:
    """Tasks of a job that the policy refused, of one step."""

    step: str
    method: str
    """The job's method, as the coordinator stated it with the last of them."""
    message: str
    """Why the last of them was refused."""
    times: int = 0


@dataclass
class DecidedPart:
    """What somebody at the site decided on a job."""

    decision: str
    """`approve`, `refuse`, `pause` or `resume`."""
    user: str
    when: str
    """ISO 8601."""
    why: str


@dataclass
class JobPart:
    """Messages that left in a job, and what was refused of it."""

    job: str
    operators: list[str]
    """Whose job it is; `NOT_PROVEN` is behind a name that the coordinator alone stated."""
    first: str
    """When the first reply left or was refused, ISO 8601 in UTC."""
    last: str
    """When the last one was."""
    parts: list[KindPart]
    refusals: list[RefusedPart] = field(default_factory=list)
    decisions: list[DecidedPart] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Size of all its replies."""
        return sum(part.bytes for part in self.parts)

    @property
    def numbers(self) -> int:
        """Numbers in all its replies' arrays."""
        return sum(part.numbers for part in self.parts)

    @property
    def replies(self) -> int:
        """Replies that left."""
        return sum(part.replies for part in self.parts)

    @property
    def refused(self) -> int:
        """Tasks that the policy refused."""
        return sum(part.times for part in self.refusals)


@dataclass
class AuditReport:
    """An audit log, summed up."""

    path: str
    files: list[str] = field(default_factory=list)
    """Files of the log, in the order of their lines; `path` is the last of them."""
    num_lines: int = 0
    num_unreadable: int = 0
    """Lines that are not entries, such as one that was cut short when the machine lost power."""
    num_missing: int = 0
    """Lines that were written and are in none of these files."""
    last_sha256: str = ""
    """Digest of the last line: kept elsewhere, it shows later that no line up to this one was changed or removed."""
    verified: bool = False
    """Whether the chain was checked; a report is not made of a log whose chain is broken."""
    jobs: list[JobPart] = field(default_factory=list)
    """In the order of their first lines."""


def audit(
    config: Path, *, check_chain: bool = False, job: str | None = None, archives: Sequence[Path] = ()
) -> AuditReport:
    """Sum up the audit log of a client.

    Args:
        config: Client file; says where the state folder is.
        check_chain: Whether to check that every line follows from the one before.
        job: Id of one job, or a beginning of ids; unset: all.
        archives: Other folders that hold files of the log.

    Raises:
        ConfigError: There is no log.
        DataError: The chain is broken; names the first line that does not follow from the one before, or the lines
            that are missing.
        UnknownJobError: Nothing left, and nothing was refused, in such a job.
    """
    path = load_client_file(config).state / AUDIT_FILE
    if not path.is_file() and not path.with_name(END_FILE).is_file():
        raise ConfigError(f"{path}: there is no audit log; it begins with the first `kernfed-client run`")
    if check_chain:
        verify(path, archives)
    report = summarise(path, job, archives)
    report.verified = check_chain
    if job is not None and not report.jobs:
        raise UnknownJobError(f"{path}: nothing left in a job {job!r}; `kernfed-client audit` lists all")
    return report


def summarise(path: Path, job: str | None = None, archives: Sequence[Path] = ()) -> AuditReport:
    """Sum up a log; lines that are no entries are counted and passed over."""
    files = find_files(path, archives)
    report = AuditReport(str(path), [str(file) for file in files], num_missing=num_missing(path, files))
    jobs: dict[str, JobPart] = {}
    parts: dict[tuple[str, tuple[str, ...]], KindPart] = {}
    for entry in (entry for file in files for entry in _entries(file, report)):
        name = str(entry["job"])
        if job is not None and not name.startswith(job):
            continue
        when, operator = str(entry["when"]), str(entry["operator"])
        if not entry.get("submission"):
            operator += NOT_PROVEN
        found = jobs.setdefault(name, JobPart(name, [], when, when, []))
        found.last = when
        if operator not in found.operators:
            found.operators.append(operator)
        if entry.get("kind") == REFUSED:
            _add_refusal(found, entry)
            continue
        if entry.get("kind") == DECIDED:
            said = (str(entry[key]) for key in ("decision", "user", "decided_at", "why"))
            found.decisions.append(DecidedPart(*said))
            continue
        kinds = tuple(str(kind) for kind in entry["kinds"])
        part = parts.get((name, kinds))
        if part is None:
            part = parts[name, kinds] = KindPart(list(kinds), [])
            found.parts.append(part)
        if entry["step"] not in part.steps:
            part.steps = sorted([*part.steps, str(entry["step"])])
        part.replies += 1
        part.bytes += int(entry["bytes"])
        part.numbers += int(entry.get("numbers", sum(math.prod(shape) for shape in entry["shapes"].values())))
    report.jobs = list(jobs.values())
    return report


def _add_refusal(found: JobPart, entry: Mapping[str, Any]) -> None:
    step = str(entry["step"])
    part = next((part for part in found.refusals if part.step == step), None)
    if part is None:
        part = RefusedPart(step, "", "")
        found.refusals.append(part)
    part.method, part.message = str(entry["method"]), str(entry["message"])
    times = entry.get("times", 1)
    part.times += times if type(times) is int and times > 0 else 1


def _entries(path: Path, report: AuditReport) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for raw in file:
            text = raw.rstrip(b"\n")
            report.num_lines += 1
            report.last_sha256 = digest(text)
            entry = read_line(text)
            if entry is not None and _is_entry(entry):
                yield entry
            else:
                report.num_unreadable += 1


def _is_entry(entry: Mapping[str, Any]) -> bool:
    if entry.get("kind") == REFUSED:
        return entry.keys() >= _REFUSAL_KEYS
    if entry.get("kind") == DECIDED:
        return entry.keys() >= _DECISION_KEYS
    if not entry.keys() >= _KEYS or not isinstance(entry["kinds"], list):
        return False
    shapes = entry["shapes"].values() if isinstance(entry["shapes"], dict) else [None]
    counts = [entry["bytes"], entry.get("numbers", 0)]
    for shape in shapes:
        if not isinstance(shape, list):
            return False
        counts += shape
    return all(type(count) is int and count >= 0 for count in counts)


_KEYS = {"when", "job", "step", "operator", "kinds", "shapes", "bytes"}
_DECISION_KEYS = {"when", "job", "operator", "decision", "why", "user", "decided_at"}
_REFUSAL_KEYS = {"when", "job", "step", "operator", "method", "message"}


def as_json(report: AuditReport) -> dict[str, Any]:
    """The report as JSON types."""
    return asdict(report)


def as_table(report: AuditReport) -> RenderableType:
    """The report for people."""
    table = Table("job", "operator", "from", "kinds", "steps", title="what left this site")
    for heading in ("replies", "bytes", "numbers"):
        table.add_column(heading, justify="right")
    for job in report.jobs:
        for i, part in enumerate(job.parts):
            head = (job.job, ", ".join(job.operators), job.first[:19]) if i == 0 else ("", "", "")
            cells = (*head, ", ".join(part.kinds) or "nothing of the data", ", ".join(part.steps))
            counts = (part.replies, part.bytes, part.numbers)
            table.add_row(*(Text(clean(cell)) for cell in cells), *(f"{count:,}" for count in counts))
        if len(job.parts) > 1:
            totals = (job.replies, job.bytes, job.numbers)
            table.add_row("", "", "", "all", "", *(f"{total:,}" for total in totals), style="bold")
        table.add_section()
    chain = "every line follows from the one before" if report.verified else "chain not checked; --verify does"
    files = f" and {len(report.files) - 1:,} files before it" if len(report.files) > 1 else ""
    notes = [f"{report.path}{files}: {report.num_lines:,} lines; {chain}"]
    if report.num_missing:
        notes.append(f"{report.num_missing:,} lines that were written are not in these files; --verify says which")
    if report.num_unreadable:
        notes.append(
            f"{report.num_unreadable} unreadable lines, as a loss of power leaves; --verify tells them from edits"
        )
    num_refused = sum(job.refused for job in report.jobs)
    if num_refused:
        notes.append(f"{num_refused:,} tasks were refused by the policy; nothing left in answer to them")
    if report.last_sha256:
        notes.append(f"SHA-256 of the last line: {report.last_sha256}")
    decided = [_decisions(report)] if any(job.decisions for job in report.jobs) else []
    tables = [table, *([_refusals(report)] if num_refused else []), *decided]
    return Group(*tables, *(Text(note) for note in notes))


def _refusals(report: AuditReport) -> Table:
    table = Table("job", "operator", "method", "step", title="what was refused")
    table.add_column("times", justify="right")
    table.add_column("why the last time")
    for job in report.jobs:
        for part in job.refusals:
            cells = (job.job, ", ".join(job.operators), part.method, part.step, f"{part.times:,}", part.message)
            table.add_row(*(Text(clean(cell)) for cell in cells))
    return table


def _decisions(report: AuditReport) -> Table:
    table = Table("job", "operator", "decision", "by", "when", "why", title="what was decided here")
    for job in report.jobs:
        for said in job.decisions:
            cells = (job.job, ", ".join(job.operators), said.decision, said.user, said.when[:19], said.why)
            table.add_row(*(Text(clean(cell)) for cell in cells))
    return table
