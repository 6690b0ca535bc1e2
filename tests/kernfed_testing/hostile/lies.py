"""A job with one client that lies in one number of one step, for every number that any reply has, and what comes of it.

The numbers are read from the dataclasses of the messages, so a field that is new is lied in without a word here.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernfed.errors import KernfedError
from kernfed.federation.events import EventKind, JobEvent
from kernfed.federation.messages.base import Kind, Reply, fields_of, validate
from kernfed_server.jobs.execute import execute
from kernfed_server.jobs.run import Run
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import Bench, RecordingJournal, Tamper
from kernfed_testing.methods.personalise import clients
from kernfed_testing.methods.variants import METHODS, job_of

CLIENTS = ("ant", "bee", "cat", "dog")
LIAR = "bee"
MOST_HARM = 3.0
"""How many times the error of a job without the liar, or of one in which it is honest, its lie may make another's.

A quarter of the weight that points the other way halves what means are of, in silence where clients differ."""
MOST_CHANGE = 30.0
"""How many times itself and 1 a figure may change that a job shows which measures no model."""
_MOST_ROUNDS = 12
_MOST_ROUNDS_OF_STREAMS = 25

GROWS = "x 3 more each time"
LIES: Mapping[str, Callable[[Any, int], Any]] = {
    "x 1e5": lambda value, _: value * 1e5,
    "x 1000": lambda value, _: value * 1000,
    GROWS: lambda value, times: value * 3.0**times,
    "x -1": lambda value, _: -value,
    "all 0": lambda value, _: value * 0,
    "all -1": lambda value, _: value * 0 - 1,
    "all 1e308": lambda value, _: value * 0 + 1e308,
    "all NaN": lambda value, _: value * 0 + float("nan"),
}
"""What becomes of an array or a number that is told for the so-manieth time."""

OF_COUNTS = ("x 1000", "x -1", "all 0")
"""Those of LIES that leave a whole number one."""


@dataclass(frozen=True)
class Lie:
    """A number that is not what the client computed."""

    step: str
    path: tuple[str, ...]
    """Field of the reply, then of the message in it."""
    kind: str
    """Of LIES."""

    def told(self, reply: Any, times: int = 1) -> Any:
        """The reply with the lie in it, told for the so-manieth time."""
        return _changed(reply, self.path, lambda value: LIES[self.kind](value, times))

    def teller(self) -> Tamper:
        """Tells the lie in reply after reply."""
        counted = itertools.count(1)
        return lambda reply: self.told(reply, next(counted))

    def __str__(self) -> str:
        """Step, field and kind."""
        return f"{self.step}.{'.'.join(self.path)} {self.kind}"


def numbers_of(message: type, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Paths of all numbers in a message, and whether each is a whole number."""
    for f in fields_of(message):
        kind = f.item if f.type is tuple else f.type
        if f.nested:
            yield from numbers_of(kind, (*before, f.name))
        elif kind in (int, float, np.ndarray):
            yield (*before, f.name), kind is int or f.whole


def lies_in(step: str, replies: list[Reply]) -> list[Lie]:
    """All lies in a step that change something in replies to it."""
    found = []
    for path, whole in numbers_of(type(replies[0])):
        for kind in OF_COUNTS if whole else LIES:
            if kind == GROWS and len(path) > 1:  # metrics, which each client has of its own in the report
                continue
            lie = Lie(step, path, kind)
            if any(_differs(_at(reply, path), _at(lie.told(reply), path)) for reply in replies):
                found.append(lie)
    return found


def _at(value: Any, path: tuple[str, ...]) -> list[Any]:
    if isinstance(value, tuple):
        return [found for item in value for found in _at(item, path)]
    return _at(getattr(value, path[0]), path[1:]) if path else [value]


def _differs(told: list[Any], true: list[Any]) -> bool:
    return any(not np.array_equal(a, b) for a, b in zip(told, true, strict=True))


def _changed(value: Any, path: tuple[str, ...], lie: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_changed(item, path, lie) for item in value)
    if path:
        return replace(value, **{path[0]: _changed(getattr(value, path[0]), path[1:], lie)})
    if value is None:
        return None
    if not isinstance(value, np.ndarray):
        return type(value)(lie(value))
    with np.errstate(all="ignore"):
        wide = value if value.dtype.kind == "f" else value.astype(np.int64)
        return lie(wide).astype(value.dtype)


@dataclass(frozen=True)
class Ended:
    """What a job told, and how good its models are."""

    events: list[JobEvent]
    error: Exception | None
    excluded: frozenset[str] = frozenset()

    @property
    def notes(self) -> list[str]:
        """What the operator was told, but the comparison at the end."""
        told = [e.message for e in self.events if e.kind is EventKind.NOTE]
        return [note for note in told if not note.startswith("end:")]

    @property
    def failed(self) -> dict[str, str]:
        """Clients that were left out of a step, and why."""
        found: dict[str, str] = {}
        for e in self.events:
            if e.kind is EventKind.CLIENT_FAILED:
                found.setdefault(e.client, f"{e.step}: {e.text}")
        return found

    def figures(self) -> dict[str, float]:
        """Numbers of what the job found, by place: all that there is to judge of a method that measures no model."""
        return {place: value for e in self.events for place, value in _figures(e.finding or {}) if e.finding}

    def errors(self) -> dict[str, float]:
        """Mean squared error of each model that does not come from one client alone, at each client and pooled."""
        closed = [e.metrics for e in self.events if e.kind is EventKind.ROUND_CLOSED and e.metrics]
        last = next((m for m in reversed(closed) if m.clients), None)
        scores = {} if last is None else {**last.clients, "pooled": last.pooled}
        return {
            f"{who} {model}": found["mse"]
            for who, models in scores.items()
            for model, found in models.items()
            if not model.startswith("local") and "mse" in found
        }


def _figures(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _figures(part, f"{place}.{name}")
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from _figures(part, f"{place}[{i}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, float(value)


def changed(figures: Mapping[str, float], honest: Mapping[str, float]) -> list[str]:
    """Places of figures that are far off those of the honest job."""
    there = figures.keys() & honest.keys()
    return sorted(f for f in there if not abs(figures[f] - honest[f]) <= MOST_CHANGE * (abs(honest[f]) + 1.0))


@dataclass(frozen=True)
class Verdict:
    """What came of a lie."""

    lie: Lie
    outcome: str
    """`left out`, `failed`, `bounded`, `named`, or what is wrong, in capitals."""
    harm: float
    said: str

    @property
    def silent(self) -> bool:
        """Whether nobody was told, or the wrong one."""
        return self.outcome.isupper()


def verdict(
    lie: Lie,
    ended: Ended,
    bounds: Mapping[str, float],
    known: Sequence[str],
    honest: Mapping[str, float] | None = None,
) -> Verdict:
    """Judge what came of a lie.

    Args:
        lie: What LIAR told.
        ended: What the job told.
        bounds: By client and model, the error that is no harm.
        known: Notes of the honest job.
        honest: Its figures, where there are no errors to judge by.
    """
    blamed = [f"{c}: {why}" for c, why in sorted(ended.failed.items()) if c != LIAR]
    if ended.error is not None:
        said = f"{type(ended.error).__name__}: {ended.error}"
        if not isinstance(ended.error, KernfedError):
            return Verdict(lie, "UNTYPED", np.inf, said)
        if not _names(said, LIAR) and LIAR not in ended.failed:
            return Verdict(lie, "FAILED WITHOUT A NAME", np.inf, said)
        return Verdict(lie, "failed", np.inf, said)
    errors = ended.errors()
    others = {name: bound for name, bound in bounds.items() if not name.startswith(LIAR)}
    lost = [f"no metrics: {name}" for name in others if name not in errors]
    harms = [errors[name] / max(bound, 1e-12) for name, bound in others.items() if name in errors]
    harm = np.inf if lost else max(harms, default=0.0)
    if LIAR in ended.failed or LIAR in ended.excluded:
        return Verdict(lie, "left out", harm, ended.failed.get(LIAR, ""))
    if new := [note for note in ended.notes if _names(note, LIAR) and note not in known]:
        return Verdict(lie, "named", harm, new[0])
    if blamed:
        return Verdict(lie, "OTHERS BLAMED", harm, "; ".join([*blamed, *lost]))
    if not bounds and (far := changed(ended.figures(), honest or {})):
        return Verdict(lie, "SILENT", harm, "; ".join(far))
    return Verdict(lie, "bounded" if harm <= MOST_HARM else "SILENT", harm, "; ".join(lost))


@dataclass
class Liars:
    """Jobs of one variant of a method: honest, without the liar, and with each lie."""

    variant: str
    folder: Path
    _count: int = 0
    _at_the_door: dict[str, Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seen: dict[str, list[Reply]] = {}
        self.honest = self._run(CLIENTS, _Recording(self.seen))
        assert self.honest.error is None, self.honest.error
        without = self._run([c for c in CLIENTS if c != LIAR], {})
        self.bounds = self.honest.errors()
        for name, error in without.errors().items():
            self.bounds[name] = max(error, self.bounds.get(name, 0.0))

    def lies(self) -> list[Lie]:
        """All lies that the liar can tell."""
        return [lie for step, replies in self.seen.items() for lie in lies_in(step, replies)]

    def tell(self, lie: Lie) -> Verdict:
        """Run the job with the lie; what a message's own ranges refuse is tried once in each step."""
        refused = _refused_at_the_door(lie.told(self.seen[lie.step][0]))
        if refused and lie.step in self._at_the_door:
            return replace(self._at_the_door[lie.step], lie=lie)
        ended = self._run(CLIENTS, {(LIAR, lie.step): lie.teller()})
        found = verdict(lie, ended, self.bounds, self.honest.notes, self.honest.figures())
        if refused:
            self._at_the_door[lie.step] = found
        return found

    def _run(self, names: Any, tamper: Mapping[tuple[str, str], Tamper]) -> Ended:
        self._count += 1
        folder = self.folder / str(self._count)
        (folder / "clients").mkdir(parents=True)
        job, files = job_of(_short(METHODS[self.variant]), folder)
        rows = {name: rows for name, rows in _rows().items() if name in names}
        journal = RecordingJournal()
        policies: dict[str, Any] = {name: {"allow": list(Kind)} for name in rows}
        jobs = clients(rows, folder / "clients", **policies)
        cohort = Bench(jobs, tamper=tamper).cohort(job, journal.event)
        run = Run(cohort, journal, None, job.evaluate_every)
        error: Exception | None = None
        try:
            asyncio.run(execute(job, cohort, run, read_file=files.__getitem__ if files else None))
        except Exception as err:  # an untyped one is what is looked for
            error = err
        return Ended(journal.events, error, frozenset(cohort.excluded))


class _Recording(dict[tuple[str, str], Tamper]):
    """Changes nothing, and keeps what the liar answers."""

    def __init__(self, seen: dict[str, list[Reply]]) -> None:
        self._seen = seen

    def get(self, key: Any, default: Any = None) -> Any:
        """See `Bench.tamper`."""
        client, step = key

        def keep(reply: Reply) -> Reply:
            self._seen.setdefault(step, []).append(reply)
            return reply

        return keep if client == LIAR else default


def _refused_at_the_door(reply: Reply) -> bool:
    try:
        validate(reply, {})
    except KernfedError:
        return True
    return False


def _names(text: str, client: str) -> bool:
    return re.search(rf"\b{client}\b", text) is not None


def _short(method: Mapping[str, Any]) -> dict[str, Any]:
    """A variant with fewer rounds where it has many, and enough on streams."""
    if "batch_rows" in method:
        return {**method, "rounds": _MOST_ROUNDS_OF_STREAMS, "metrics_every": _MOST_ROUNDS_OF_STREAMS}
    return {**method, "rounds": min(method["rounds"], _MOST_ROUNDS)} if "rounds" in method else dict(method)


def _rows(size: int = 60, num_test: int = 20) -> dict[str, Rows]:
    """Clients whose rows are of one law."""
    random = np.random.default_rng(3)
    found = {}
    for name in CLIENTS:
        x = random.random((size + num_test, 3))
        y = 0.5 + 0.5 * np.sin(3 * x[:, 0]) + 0.3 * x[:, 1] + 0.05 * random.normal(size=len(x))
        found[name] = Rows(x[:size], y[:size], x[size:], y[size:])
    return found
