"""`kernfed-client audit`: what left this site, by job and kind, from the audit log alone; needs no network."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernfed.errors import ConfigError, UnknownJobError
from kernfed.jobs.client_file import load_client_file
from kernfed.wording import clean
from kernfed_client.daemon.audit import AUDIT_FILE, read_line, verify


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
class JobPart:
    """Messages that left in a job."""

    job: str
    operators: list[str]
    first: str
    """When the first reply left, ISO 8601 in UTC."""
    last: str
    """When the last one did."""
    parts: list[KindPart]

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


@dataclass
class AuditReport:
    """An audit log, summed up."""

    path: str
    num_lines: int = 0
    num_unreadable: int = 0
    """Lines that are not entries, such as one that was cut short when the machine lost power."""
    last_sha256: str = ""
    """Digest of the last line: kept elsewhere, it shows later that no line up to this one was changed or removed."""
    verified: bool = False
    """Whether the chain was checked; a report is not made of a log whose chain is broken."""
    jobs: list[JobPart] = field(default_factory=list)
    """In the order of their first replies."""


def audit(config: Path, *, check_chain: bool = False, job: str | None = None) -> AuditReport:
    """Sum up the audit log of a client.

    Args:
        config: Client file; says where the state folder is.
        check_chain: Whether to check that every line follows from the one before.
        job: Id of one job, or a beginning of ids; unset: all.

    Raises:
        ConfigError: There is no log.
        DataError: The chain is broken; names the first line that does not follow from the one before.
        UnknownJobError: Nothing left in such a job.
    """
    path = load_client_file(config).state / AUDIT_FILE
    if not path.is_file():
        raise ConfigError(f"{path}: there is no audit log; it begins with the first `kernfed-client run`")
    if check_chain:
        verify(path)
    report = summarise(path, job)
    report.verified = check_chain
    if job is not None and not report.jobs:
        raise UnknownJobError(f"{path}: nothing left in a job {job!r}; `kernfed-client audit` lists all")
    return report


def summarise(path: Path, job: str | None = None) -> AuditReport:
    """Sum up a log; lines that are no entries are counted and passed over."""
    report = AuditReport(str(path))
    jobs: dict[str, JobPart] = {}
    parts: dict[tuple[str, tuple[str, ...]], KindPart] = {}
    for entry in _entries(path, report):
        name = str(entry["job"])
        if job is not None and not name.startswith(job):
            continue
        when, operator = str(entry["when"]), str(entry["operator"])
        found = jobs.setdefault(name, JobPart(name, [], when, when, []))
        found.last = when
        if operator not in found.operators:
            found.operators.append(operator)
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


def _entries(path: Path, report: AuditReport) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for raw in file:
            text = raw.rstrip(b"\n")
            report.num_lines += 1
            report.last_sha256 = hashlib.sha256(text).hexdigest()
            entry = read_line(text)
            if entry is not None and _is_entry(entry):
                yield entry
            else:
                report.num_unreadable += 1


def _is_entry(entry: Mapping[str, Any]) -> bool:
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
    notes = [f"{report.path}: {report.num_lines:,} lines; {chain}"]
    if report.num_unreadable:
        notes.append(
            f"{report.num_unreadable} unreadable lines, as a loss of power leaves; --verify tells them from edits"
        )
    if report.last_sha256:
        notes.append(f"SHA-256 of the last line: {report.last_sha256}")
    return Group(table, *(Text(note) for note in notes))
