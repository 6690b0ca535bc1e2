"""The files that a job leaves: written aside, moved into place at once, listed with digests, read in pieces."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import structlog

from kernfed.artifact_names import FINDINGS, JOB_JSON, JOB_TOML
from kernfed.errors import UnknownArtifactError
from kernfed.federation.events import EventKind, RoundMetrics
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.catalogue import message_modules
from kernfed.jobs.info import ArtifactInfo, JobInfo, NumberedEvent
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.metrics_file import write_metrics
from kernfed.jobs.plugins_used import PluginsFinding
from kernfed.methods.finding import ResolvedFinding
from kernfed.methods.shares import SharesFinding
from kernfed.numeric_platform import numeric_platform
from kernfed.wording import clean
from kernfed_server.jobs.run import Model
from kernfed_server.keeping.disk import opened

log = structlog.get_logger(__name__)

PIECE_BYTES: Final = 1 << 20

KEPT_KINDS: Final = (
    EventKind.ROUND_CLOSED,
    EventKind.NOTE,
    EventKind.CLIENT_JOINED,
    EventKind.CLIENT_FAILED,
    EventKind.CLIENT_MISSING,
    EventKind.FINDING,
)
"""Events that artifacts tell of."""


def write_folder(
    folder: Path,
    info: JobInfo,
    file: JobFile,
    events: Sequence[NumberedEvent],
    answers: Mapping[str, Mapping[str, int]],
    model: Model | None,
    took_part: Mapping[str, Mapping[str, int]] | None = None,
    devices: Mapping[str, str] | None = None,
) -> None:
    """Write a job's files, without the report, into a new folder. Blocks.

    Args:
        folder: Made here.
        info: The job as it ended.
        file: Its file, parsed: with all defaults.
        events: Those of `KEPT_KINDS`, in order.
        answers: Client to step to number of answers.
        model: What the workflow returned, if it returned a model.
        took_part: Client to numbers of rounds, from `kernfed_server.jobs.outcomes.participation`.
        devices: Client to what it computes on, as it reported.
    """
    folder.mkdir(parents=True)
    (folder / JOB_TOML).write_text(info.job_toml, encoding="utf-8")
    record = job_record(info, file, events, answers) | {"participation": took_part or {}}
    record["platform"] = {"coordinator": asdict(numeric_platform()), "clients": dict(sorted((devices or {}).items()))}
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / JOB_JSON).write_text(text + "\n", encoding="utf-8")
    rounds = [(e.event.round_num, e.event.metrics or RoundMetrics()) for e in events if _closes_round(e)]
    write_metrics(folder, rounds)
    findings = {e.event.message: e.event.finding for e in events if e.event.kind is EventKind.FINDING}
    if findings:
        text = json.dumps(findings, indent=1, ensure_ascii=False, allow_nan=False, sort_keys=True)
        (folder / FINDINGS).write_text(text + "\n", encoding="utf-8")
    if model is not None:
        model.save(folder, durable=False)  # `kernfed.files.move_folder` syncs all that is here, at once


def job_record(
    info: JobInfo,
    file: JobFile,
    events: Sequence[NumberedEvent],
    answers: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """Facts of a finished job for `job.json`: JSON values only."""
    kinds = step_kinds()
    return {
        "job_id": info.job_id,
        "name": info.name,
        "method": info.method,
        "state": info.state.value,
        "error_reason": info.error_reason,
        "error_message": info.error_message,
        "submitted_by": info.submitted_by,
        "submitted_at": _iso(info.submitted_at),
        "started_at": _iso(info.started_at),
        "finished_at": _iso(info.finished_at),
        "num_rounds": info.num_rounds,
        "rounds_closed": info.round_num,
        "clients": list(info.clients),
        "settings": info.settings or file.plan(),
        "resolved": _resolved(events),
        "shares": _last_finding(events, SharesFinding.name),
        "plugins": _plugins(events),
        "notes": _notes(events),
        "failures": _failures(events),
        "answers": {
            client: [
                {"step": step, "count": count, "kinds": kinds.get(step, [])}
                for step, count in sorted(answers[client].items())
            ]
            for client in sorted(answers)
        },
    }


def step_kinds() -> dict[str, list[str]]:
    """Kinds of information that the answer to each step lets out of a site, by the step's name."""
    for _ in message_modules():
        pass  # a class is known once its module is loaded
    return {cls.step: [kind.value for kind in cls.kinds] for cls in _requests(Request) if "step" in vars(cls)}


def _requests(cls: type[Request[Any]]) -> Iterator[type[Request[Any]]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _requests(sub)


async def render_report(folder: Path, cache: Path, timeout_s: float) -> str:
    """Write `report.html` in a process of its own, so that plots cost the coordinator no memory.

    Args:
        folder: With the job's other files.
        cache: For the fonts that matplotlib finds; it makes the folder.
        timeout_s: After this the process is ended.

    Returns:
        What went wrong, for the log; empty if nothing did.
    """
    writer = _ReportProcess(folder, cache)
    running = asyncio.ensure_future(asyncio.to_thread(writer.run))
    try:
        done, _ = await asyncio.wait([running], timeout=timeout_s)
    finally:  # also where the job is cancelled or the coordinator stops: no process outlives this call
        writer.kill()
        await asyncio.wait([running])
    return running.result() if done else f"no report after {timeout_s:g} s"


def without_report(fault: str, folder: Path) -> str:
    """Words for the job's operator where there is no report; the log has all of the fault.

    Args:
        fault: As `render_report` returns it.
        folder: With the job's files, whose place is the coordinator's own affair.
    """
    last = clean(fault.strip().rpartition("\n")[2].replace(f"{folder}/", "").removeprefix("error: "))[:300]
    return f"report.html could not be written ({last}); `kernfed report DIR` writes it from the files that are fetched"


class _ReportProcess:
    """The process that draws a report. The thread in `run` owns it: starts it, reads what it says, and reaps it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self._command = (sys.executable, "-m", "kernfed.report.page", str(folder))
        self._environment = {**os.environ, "MPLCONFIGDIR": str(cache), "OMP_NUM_THREADS": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def run(self) -> str:
        """Wait for its end; returns what went wrong, as `render_report`. Blocks."""
        # Not by asyncio's own call: uvloop forks, and gRPC aborts a forked child now and then. `Popen` does not fork.
        with subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self._environment,
        ) as process:
            self._process = process
            if self._killed:  # while it started
                process.kill()
            _, stderr = process.communicate()
        if process.returncode == 0:
            return ""
        return stderr.decode(errors="replace")[-2000:] or f"its process ended with status {process.returncode}"

    def kill(self) -> None:
        """End it, whether it has started or will; one that is over is left alone. Never blocks."""
        self._killed = True
        if self._process is not None:
            self._process.kill()


class ArtifactShelf:
    """Lists and reads artifacts; remembers their digests, for a large model takes a second to hash."""

    def __init__(self) -> None:
        self._digests: dict[tuple[Path, int, int], str] = {}

    async def listing(self, folder: Path) -> list[ArtifactInfo]:
        """Files of a job, sorted by name; none before it is over."""
        return [info for info, _ in await asyncio.to_thread(self._scan, folder)]

    async def find(self, folder: Path, name: str) -> tuple[ArtifactInfo, Path]:
        """One file. Its name is compared with those that are there; it never becomes a path.

        Raises:
            UnknownArtifactError: There is none of this name.
        """
        found = await asyncio.to_thread(self._scan, folder)
        for info, path in found:
            if info.name == name:
                return info, path
        names = ", ".join(info.name for info, _ in found) or "none yet: it leaves them when it ends"
        raise UnknownArtifactError(f"no artifact {name[:128]!r}; the job's artifacts: {names}")

    def _scan(self, folder: Path) -> list[tuple[ArtifactInfo, Path]]:
        if not folder.is_dir():
            return []
        found = []
        for path in sorted(folder.iterdir()):
            if path.is_symlink() or not path.is_file() or path.name.startswith("."):
                continue
            stat = path.stat()
            key = (path, stat.st_size, stat.st_mtime_ns)
            if key not in self._digests:
                with path.open("rb") as file:
                    self._digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
            found.append((ArtifactInfo(path.name, stat.st_size, self._digests[key]), path))
        return found


async def read_pieces(path: Path) -> AsyncGenerator[bytes, None]:
    """Content of a file in pieces of at most 1 MiB, read off the event loop; close it when not read to its end."""
    async with opened(lambda: path.open("rb")) as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


def _resolved(events: Sequence[NumberedEvent]) -> dict[str, float]:
    """Numbers in the place of rules, by the key of the job file."""
    found = _last_finding(events, ResolvedFinding.name)
    return {f"method.{k}": v for k, v in ResolvedFinding.from_json(found).values.items()} if found else {}


def _last_finding(events: Sequence[NumberedEvent], name: str) -> Mapping[str, Any]:
    """The last finding of a name, as JSON values; empty where there is none."""
    found = [e.event.finding for e in events if e.event.message == name and e.event.finding is not None]
    return found[-1] if found else {}


def _plugins(events: Sequence[NumberedEvent]) -> dict[str, Any]:
    """Packages from outside that the job used; a coordinator that started anew may have had other releases before."""
    of_lives = [e.event.finding for e in events if e.event.message == PluginsFinding.name and e.event.finding]
    told: dict[str, Any] = {}
    for finding in of_lives:
        for name, used in finding["packages"].items():
            before = told.get(name, {"releases": []})["releases"]
            told[name] = {**used, "releases": before if used["version"] in before else [*before, used["version"]]}
    return told


def _closes_round(numbered: NumberedEvent) -> bool:
    return numbered.event.kind is EventKind.ROUND_CLOSED


def _notes(events: Sequence[NumberedEvent]) -> list[dict[str, Any]]:
    """Notes, each once: a resumed run says some of them again."""
    notes = [e.event for e in events if e.event.kind in (EventKind.NOTE, EventKind.CLIENT_JOINED)]
    first = {note.message: note.round_num for note in reversed(notes)}
    return [{"round": first[message], "message": message} for message in dict.fromkeys(n.message for n in notes)]


def _failures(events: Sequence[NumberedEvent]) -> list[dict[str, Any]]:
    """Failures of clients; one that comes again in later rounds is counted, not repeated."""
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for numbered in events:
        event = numbered.event
        if event.kind is EventKind.CLIENT_MISSING:
            reason, message = "MISSING", event.message or "no answer by the deadline"
        elif event.kind is EventKind.CLIENT_FAILED:
            reason, message = event.reason, event.message
        else:
            continue
        facts = found.setdefault(
            (event.client, event.step, reason, message),
            {
                "client": event.client,
                "step": event.step,
                "reason": reason,
                "message": message,
                "first_round": event.round_num,
                "last_round": event.round_num,
                "count": 0,
            },
        )
        facts["count"] += 1
        facts["last_round"] = event.round_num
    return sorted(found.values(), key=lambda f: (f["client"], f["first_round"], f["step"]))


def _iso(when: datetime | None) -> str | None:
    return when.isoformat(timespec="milliseconds") if when else None
