"""`kernfed-simulate --sweep`: a job at every combination of some keys' values, as a table, JSON and a plot."""

from __future__ import annotations

import itertools
import json
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernfed import files
from kernfed.errors import ConfigError
from kernfed.federation.events import EventKind, Scores
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.toml_file import validated
from kernfed_simulation.run import Simulated

MAX_RUNS = 1000


@dataclass(frozen=True, slots=True)
class Axis:
    """A key of the [method] table and the values that it takes."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one combination."""

    settings: Mapping[str, Any]
    scores: Scores
    """Of the global model on all test rows."""
    training: Scores
    curve: tuple[tuple[int, float], ...]
    """Rounds and the main metric after them."""
    rounds: int
    seconds: float
    error: str = ""


def parse_axis(text: str) -> Axis:
    """Read `key=value,value,...`; values as in TOML, text without quotes.

    Raises:
        ConfigError: It is not of this form.
    """
    key, equals, values = text.partition("=")
    found = tuple(_value(part.strip()) for part in values.split(",") if part.strip())
    if not equals or not key.strip().isidentifier() or not found:
        raise ConfigError(f"--sweep {text}: write KEY=VALUE,VALUE,..., e.g. damping=0.001,0.01,auto")
    return Axis(key.strip(), found)


def combinations(job: JobFile, axes: Sequence[Axis]) -> list[tuple[dict[str, Any], JobFile]]:
    """Every combination of the axes' values with the job that has it.

    Raises:
        ConfigError: A key or a value is not one of the method's, or there are too many combinations.
    """
    keys = [axis.key for axis in axes]
    if len(set(keys)) != len(keys):
        raise ConfigError("--sweep names a key twice; give all its values at once")
    grid = list(itertools.product(*(axis.values for axis in axes)))
    if len(grid) > MAX_RUNS:
        raise ConfigError(f"--sweep makes {len(grid)} runs, more than {MAX_RUNS}; give fewer values")
    found = []
    for values in grid:
        settings = dict(zip(keys, values, strict=True))
        whole = job.model_dump(mode="json", exclude_unset=True)
        whole["method"] |= settings
        found.append((settings, validated(JobFile, whole, f"--sweep {_shown(settings)}")))
    return found


def run_sweep(
    runs: Sequence[tuple[dict[str, Any], JobFile]],
    simulate: Callable[[JobFile], Simulated],
    metric: str,
    listen: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run every combination, one after the other; a run that fails is an outcome too.

    Args:
        runs: As `combinations` gives them.
        simulate: Runs a job on fresh clients.
        metric: The main metric, of the curve.
        listen: Told of each outcome.
    """
    outcomes = []
    for settings, job in runs:
        started = time.perf_counter()
        done = simulate(job)
        closed = {e.event.round_num: e.event for e in done.events if e.event.kind is EventKind.ROUND_CLOSED}
        curve = tuple(
            (number, event.metrics.pooled["global"][metric])
            for number, event in sorted(closed.items())
            if event.metrics is not None and metric in event.metrics.pooled.get("global", {})
        )
        outcome = Outcome(
            settings=settings,
            scores=done.final.pooled.get("global", {}),
            training=done.final.training,
            curve=curve,
            rounds=done.info.round_num,
            seconds=time.perf_counter() - started,
            error=done.error.reason if done.error else "",
        )
        outcomes.append(outcome)
        listen(outcome)
    return outcomes


def table(outcomes: Sequence[Outcome], metric: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of text, in the order of the runs."""
    keys = list(outcomes[0].settings)
    columns = [*keys, metric, "loss", "rounds", "uploads", "seconds", ""]
    rows = [
        [
            *(str(o.settings[key]) for key in keys),
            _number(o.scores.get(metric)),
            _number(o.training.get("loss")),
            str(o.rounds),
            _number(o.training.get("uploads"), 1),
            f"{o.seconds:.1f}",
            o.error,
        ]
        for o in outcomes
    ]
    return columns, rows


def write(folder: Path, outcomes: Sequence[Outcome], metric: str) -> None:
    """Write `sweep.json` and `sweep.png`: final scores over the first key's values, and curves over rounds."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = [as_json(outcome) for outcome in outcomes]
    text = json.dumps(facts, indent=1) + "\n"
    files.replace(folder / "sweep.json", text.encode(), durable=False)  # the same command makes it again
    import matplotlib as mpl  # noqa: PLC0415  # only a sweep with --out draws

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415  # only a sweep with --out draws

    keys = list(outcomes[0].settings)
    lines: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        rest = {key: outcome.settings[key] for key in keys[1:]}
        lines.setdefault(_shown(rest) or keys[0], []).append(outcome)
    names = list(dict.fromkeys(str(o.settings[keys[0]]) for o in outcomes))
    figure, (final, course) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for i, (label, members) in enumerate(lines.items()):
        known = [(names.index(str(o.settings[keys[0]])), o) for o in members]
        final.plot(
            [x for x, _ in known],
            [o.scores.get(metric, float("nan")) for _, o in known],
            marker="o",
            label=label,
            color=f"C{i % 10}",
        )
        for x, o in known:
            if o.error:
                final.annotate(o.error.lower(), (x, 0.02), xycoords=("data", "axes fraction"), rotation=90, fontsize=8)
    for outcome in outcomes:
        if outcome.curve:
            course.plot(*zip(*outcome.curve, strict=True), lw=1.2, label=_shown(outcome.settings))
    final.set_xticks(range(len(names)), labels=names)
    final.set_xlabel(keys[0])
    final.set_ylabel(metric)
    course.set_xlabel("round")
    course.set_ylabel(metric)
    if len(lines) > 1 and len(lines) <= 12:
        final.legend(fontsize=8)
    if len(outcomes) <= 12:
        course.legend(fontsize=7)
    for axes in (final, course):
        axes.grid(alpha=0.3)
    figure.savefig(folder / "sweep.png", dpi=110)
    plt.close(figure)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """JSON values of an outcome."""
    return {
        "settings": dict(outcome.settings),
        "scores": dict(outcome.scores),
        "training": dict(outcome.training),
        "curve": [list(point) for point in outcome.curve],
        "rounds": outcome.rounds,
        "seconds": round(outcome.seconds, 3),
        "error": outcome.error,
    }


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
