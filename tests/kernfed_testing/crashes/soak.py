"""Jobs of every method in a federation of processes, each met by several faults and compared with its twin.

A twin is the same job left in peace. A job has to end with the SHA-256 of its twin's models; or with others, and say
why; or failed, and say why. It may not hang, and no process may write a traceback.

Every draw comes from one seed, but for the moment at which a fault meets a running job, which depends on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernfed.artifact_names import CHECKPOINT, FINDINGS, JOB_JSON, JOB_TOML, METRICS_JSONL
from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind, JobEvent, JobState
from kernfed.jobs.info import JobInfo
from kernfed.jobs.job_file import named_files, parse_job
from kernfed.jobs.named_files import attach_files
from kernfed.methods.base import Needs
from kernfed.methods.registry import METHODS
from kernfed_client.daemon.audit_chain import verify
from kernfed_server.methods.registry import WORKFLOWS
from kernfed_testing import nodes
from kernfed_testing.crashes.faults import Fault, Faults
from kernfed_testing.federation import COLUMNS, Federation
from kernfed_testing.methods.installed import STREAMING

CLIENTS = ("a", "b", "c")
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: {"rounds": 40} for name in STREAMING},
    "newton": {"rounds": 12},
    "fedavg": {"rounds": 40},
    "fedprox": {"rounds": 40},
    "fedsophia": {"rounds": 20, "loss": "squared"},
    "fednew": {"rounds": 20, "loss": "squared"},
    "probe": {"rounds": 8, "payload_bytes": 400_000},
    "reweight": {"scope": "own"},  # these clients' policies let no samples leave
    "distill": {"rounds": 40, "public": "public.csv", "tolerance": 0.0},
    "online": {"rounds": 40, "num_kernels": 5, "kernels_per_round": 2, "num_frequencies": 8},
}
"""What a small job of a method says; of the others nothing."""
FOLLOWED = frozenset({"cox"})
"""Methods whose model has no end where a column follows from the target, as `ill` does: their jobs leave it out."""
FAULTS_PER_JOB = 8
LINE_DELAY_S = 0.01
"""Per piece on every line, so that a small job lasts long enough to be disturbed."""
ABSENCE = {EventKind.CLIENT_MISSING, EventKind.CLIENT_FAILED, EventKind.CLIENT_JOINED}
"""Events by which a job says that a round was another than its twin's."""

Say = Callable[[str], None]


class End(enum.StrEnum):
    """How a job ended."""

    SAME = "same"
    TOLD = "told"
    """Otherwise than its twin, and it said why."""
    FAILED = "failed"
    """It said why, and a fault had taken what it needs."""
    WRONG = "WRONG"


@dataclass
class Result:
    """What a soak came to."""

    ends: Counter[End] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    """By the first words of their names."""
    wrong: list[str] = field(default_factory=list)

    @property
    def num_faults(self) -> int:
        """Each once; all met a job that was under way, and what is planned, as a backup, is none."""
        return sum(self.faults.values())

    def add(self, other: Result) -> None:
        """Take in what another soak came to."""
        self.ends += other.ends
        self.faults += other.faults
        self.wrong += other.wrong

    def line(self, seed: int) -> str:
        """The one line that counts."""
        same, told, failed, wrong = (self.ends[end] for end in End)
        return (
            f"{self.ends.total()} jobs, {self.num_faults} faults, seed {seed}: {same} ended with the SHA-256 of their "
            f"undisturbed twins, {told} otherwise and said why, {failed} failed and said why, {wrong} WRONG"
        )


def federation(root: Path, database: str | None = None) -> Federation:
    """Three clients behind proxies and a coordinator, all processes."""
    settings = dict.fromkeys(CLIENTS, "[policy]\nmin_rows = 1")
    coordinator = "" if database is None else f'database = "{database}"'
    return Federation(
        root,
        CLIENTS,
        processes=True,
        proxied=CLIENTS,
        settings=settings,
        heartbeat_s=(0.2, 2.0),
        coordinator=coordinator,
    )


_OF_A_RUN = {JOB_TOML, JOB_JSON, METRICS_JSONL, FINDINGS, CHECKPOINT}
"""Artifacts that tell when and how a job ran."""


def is_model(name: str) -> bool:
    """Whether an artifact is a model, which two runs must leave alike; a checkpoint also tells what happened."""
    return name.endswith(".safetensors") and name != CHECKPOINT


def job_of(method: str, least: int = 3, *, typed: bool = False) -> str:
    """Text of a small job of a method, without keys that do nothing there.

    Args:
        method: Its name.
        least: Clients that its rounds need.
        typed: Whether its columns have types, as they have in every third turn of the methods.
    """
    settings = {"name": method, **SETTINGS.get(method, {})}
    idle = METHODS[method].settings.model_validate(settings).unused_keys("regression")
    cohort: dict[str, Any] = {"clients": CLIENTS, "min_clients": least}
    if least < len(CLIENTS):
        cohort |= {"deadline_s": 4.0, "grace_s": 1.0, "min_fraction": 0.1}
    with_class = typed and method not in FOLLOWED
    columns = (*COLUMNS, "ill") if with_class else COLUMNS
    tables: dict[str, Mapping[str, Any]] = {"method": settings, "cohort": cohort}
    if "data" not in idle:
        tables["data"] = {"task": "regression", "target": "y", "features": columns}
    if METHODS[method].needs(METHODS[method].settings.model_validate(settings)) is Needs.FEATURES:
        tables["features"] = {"num_frequencies": 20}
    if typed and "data" in tables:  # what public points lack is not agreed on: levels, and what gaps are filled with
        public = "public" in settings
        tables["data.columns.dose"] = {"clip": [-1.5, 1.5]} | ({} if public else {"missing": "mean"})
        if with_class:
            tables["data.columns.ill"] = {"kind": "category"} | ({"levels": ["0", "1"]} if public else {})
    lines = ["name = 'soak'", *([] if "seed" in idle else ["seed = 3"])]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join([*lines, ""])


def with_files(text: str, folder: Path) -> tuple[str, Mapping[str, bytes]]:
    """The text of a job whose files are named by their content, and these; they are made in the folder."""
    job = parse_job(text)
    for name in named_files(job):
        points = np.random.default_rng(7).normal(size=(30, len(COLUMNS)))
        rows = [",".join([*map(repr, point), str(int(point[0] > 0))]) for point in points.tolist()]
        (folder / name).write_text("\n".join([",".join((*COLUMNS, "ill")), *rows]) + "\n")
    _, text, files = attach_files(job, text, folder)
    return text, files


async def job_text(fed: Federation, method: str, least: int = 3, *, typed: bool = False) -> str:
    """See `job_of`; what the job names is uploaded."""
    text, files = with_files(job_of(method, least, typed=typed), fed.root)
    for content in files.values():
        await fed.operator.upload(content)
    return text


class Soak:
    """One soak over a federation that is up."""

    def __init__(self, fed: Federation, faults: Faults, seed: int, say: Say) -> None:
        self._fed = fed
        self._faults = faults
        self._seed = seed
        self._say = say
        self._twins: dict[tuple[str, bool], Mapping[str, str]] = {}
        """What is left of a method's undisturbed job, whose columns have types or none."""
        self.result = Result()

    async def run(self, numbers: Sequence[int], methods: tuple[str, ...] = tuple(WORKFLOWS)) -> Result:
        """Run the jobs of these numbers, the methods in turn."""
        for proxy in self._fed.proxies.values():
            proxy.delay_s = LINE_DELAY_S
        for number in numbers:
            method, typed = methods[number % len(methods)], number // len(methods) % 3 == 1
            if (method, typed) not in self._twins:
                info = await self._end(await self._submit(method, len(CLIENTS), typed))
                if info.state is not JobState.SUCCEEDED:
                    raise AssertionError(f"{method} fails undisturbed: {info.error_message}")
                self._twins[method, typed] = await self._digests(info)
            await self._disturbed(number, method, typed)
        return self.result

    async def _disturbed(self, number: int, method: str, typed: bool) -> None:
        draw = random.Random(f"{self._seed} {number}")
        least = draw.choice([len(CLIENTS), len(CLIENTS), len(CLIENTS) - 1])
        planned = draw.randint(2, FAULTS_PER_JOB)
        loses_checkpoint = draw.random() < 0.03
        pauses_s = [draw.expovariate(1 / 0.4) for _ in range(planned)]
        job_id = await self._submit(method, least, typed)
        met: list[Fault] = []
        for i in range(planned):
            await asyncio.sleep(pauses_s[i])
            if (await self._get(job_id)).state.finished:
                break
            last = i == planned - 1
            fault = self._faults.draw(f"{self._seed} {number} {i}")
            if last and loses_checkpoint:
                fault = self._faults.lose_checkpoint()
            met.append(fault)
            await fault.inflict()
        end, why = await self._judged(job_id, self._twins[method, typed], least, met)
        self.result.ends[end] += 1
        self.result.faults.update(" ".join(fault.name.split()[:2]) for fault in met if not fault.planned)
        names = "; ".join(fault.name for fault in met)
        label = f"{method}, typed" if typed else method
        told = f"{number:4} {label:16} of {least}: {end}{f' ({why})' if why else ''} | {names}"
        if end is End.WRONG:
            self.result.wrong.append(told)
        self._say(f"{told} [{self.result.num_faults}]")
        self._faults.forget_backups()

    async def _judged(self, job_id: str, twin: Mapping[str, str], least: int, met: Sequence[Fault]) -> tuple[End, str]:
        """How a job ended, and why so."""
        try:
            info = await self._end(job_id)
        except TimeoutError:
            info = await self._get(job_id)
            with contextlib.suppress(KernfedError):
                await self._fed.operator.cancel(job_id)
            words = f"hangs: {info.state.value} in round {info.round_num}, {info.waiting_for}"
            return End.WRONG, f"{words}; last said: {self._last_said()}"
        if traces := self._traces():
            return End.WRONG, f"traceback: {traces[0]}"
        for name in CLIENTS:
            try:
                await asyncio.to_thread(verify, self._fed.client_folder(name) / "state" / "audit.jsonl")
            except KernfedError as err:
                return End.WRONG, f"audit log: {err}"
        if info.state is not JobState.SUCCEEDED:
            good = any(fault.may_fail for fault in met) and info.error_reason not in ("", KernfedError.reason)
            first = " | ".join(info.error_message.splitlines()[:4])
            return (End.FAILED if good else End.WRONG), f"{info.state.value}: {info.error_reason}: {first}"
        events = [numbered.event for numbered in await self._fed.operator.events(job_id)]
        twice = _counted_twice(events)
        if twice:
            return End.WRONG, f"counted twice: {twice}"
        if await self._digests(info) == twin:
            return End.SAME, ""
        absent = [e for e in events if e.kind in ABSENCE]
        lost = [e.message for e in events if e.kind is EventKind.NOTE and "learned again" in e.message]
        away = [e.message for e in events if e.kind is EventKind.NOTE and "goes on without it" in e.message]
        may_tell = any(fault.may_tell for fault in met)
        if away and least < len(CLIENTS):
            return End.TOLD, away[0]
        if lost and may_tell:
            return End.TOLD, lost[0]
        if absent and least < len(CLIENTS):
            first_absent = absent[0]
            return End.TOLD, f"{first_absent.kind.value} {first_absent.client} in round {first_absent.round_num}"
        return End.WRONG, f"another model, and no word: {[e.text for e in absent]}, {_notes(events)}"

    def _traces(self) -> list[str]:
        found = []
        for node in (self._fed.coordinator, *self._fed.clients.values()):
            found += node.traces
            node.traces = []
        return found

    def _last_said(self) -> dict[str, list[str]]:
        """The last lines of each process's log."""
        sides = {"coordinator": self._fed.coordinator, **self._fed.clients}
        return {
            side: [" ".join(str(e[k]) for k in ("event", "error") if k in e) for e in node.log[-3:]]
            for side, node in sides.items()
        }

    async def _submit(self, method: str, least: int, typed: bool) -> str:
        return (await self._fed.submit(await job_text(self._fed, method, least, typed=typed))).job_id

    async def _get(self, job_id: str) -> JobInfo:
        """A job, whose coordinator may just have been started."""
        async with asyncio.timeout(nodes.LIMIT_S):
            while True:
                try:
                    return await self._fed.operator.get(job_id)
                except KernfedError as err:
                    if not err.reason == "UNAVAILABLE":
                        raise
                    await asyncio.sleep(0.2)

    async def _end(self, job_id: str) -> JobInfo:
        """A job at its end; not by watching, for a coordinator that was restored numbers events anew."""
        async with asyncio.timeout(nodes.LIMIT_S):
            while not (info := await self._get(job_id)).state.finished:
                await asyncio.sleep(0.1)
        return info

    async def _digests(self, info: JobInfo) -> Mapping[str, str]:
        """Digests of the models that a job left; where it leaves none, of its metrics and of what it found.

        Beside a model metrics are not compared: some count bytes. Those of a probe are times; it compares its numbers.
        """
        left = {a.name: a.sha256 for a in await self._fed.operator.artifacts(info.job_id)}
        models = {name: digest for name, digest in left.items() if is_model(name)}
        other = {name: digest for name, digest in left.items() if name not in _OF_A_RUN}
        return models or ({} if info.method == "probe" else other)


def _counted_twice(events: Sequence[JobEvent]) -> str:
    """A second, different reply to a task."""
    return next((e.message for e in events if e.kind is EventKind.NOTE and "second, different reply" in e.message), "")


def _notes(events: Sequence[JobEvent]) -> list[str]:
    return [e.message for e in events if e.kind is EventKind.NOTE]
