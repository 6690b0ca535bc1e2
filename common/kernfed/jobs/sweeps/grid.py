"""A job at every combination of some keys' values: which jobs these are, how they are ranked, and a table of them.

Each combination runs on the clients' training rows less their validation rows (`data.validation_fraction`), with one
seed or several, and is ranked by its metric on the validation rows. The one that is chosen then runs as the job file
says, and is measured on the test rows, which had no say.
"""

from __future__ import annotations

import itertools
import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernfed.errors import ConfigError
from kernfed.federation.events import RoundMetrics, Scores
from kernfed.jobs.job_file import JobFile, named_files
from kernfed.jobs.sweeps.section import SweepSection
from kernfed.jobs.toml_file import validated
from kernfed.methods.registry import METHODS, method_of
from kernfed.metric_names import DELIVERED, LOWER_IS_BETTER

MAX_RUNS = 1000
VALIDATION = 0.2
"""Usual share of a client's rows that settings are chosen on."""
_KEY = "data.validation_fraction"
_DEALING = ("split", "test_fraction", "validation_fraction")
"""Keys of [data] that decide which rows a job is measured on."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A key of the job file, dotted or of [method], and the values that it takes."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination, and its jobs, one for each seed."""

    settings: Mapping[str, Any]
    jobs: tuple[JobFile, ...]
    chosen: JobFile
    """The job as the file has it, with these settings."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one job of a combination came to."""

    scores: Scores
    """Of the model that it leaves, over all clients' rows that it measures on."""
    training: Scores = field(default_factory=dict)
    curve: tuple[tuple[int, float], ...] = ()
    """Rounds and the main metric after them."""
    rounds: int = 0
    seconds: float = 0.0
    error: str = ""
    """Reason code; empty: it succeeded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one combination."""

    settings: Mapping[str, Any]
    runs: tuple[Run, ...]

    @property
    def error(self) -> str:
        """Of the first run that failed; empty: none did."""
        return next((run.error for run in self.runs if run.error), "")

    def of(self, metric: str) -> float | None:
        """Mean of a metric over the runs; None: one has none."""
        found = [run.scores[metric] for run in self.runs if metric in run.scores]
        return statistics.fmean(found) if found and len(found) == len(self.runs) else None

    def error_of(self, metric: str) -> float | None:
        """Standard error of that mean over seeds; None: there is one seed."""
        found = [run.scores[metric] for run in self.runs if metric in run.scores]
        return statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else None


def parse_axis(text: str) -> Axis:
    """Read `key=value,value,...`; values as in TOML, text without quotes.

    Raises:
        ConfigError: It is not of this form.
    """
    key, equals, values = text.partition("=")
    found = tuple(_value(part.strip()) for part in values.split(",") if part.strip())
    parts = key.strip().split(".")
    if not equals or not found or not all(part.isidentifier() for part in parts):
        raise ConfigError(
            f"--sweep {text}: write KEY=VALUE,VALUE,..., e.g. ridge=0.001,0.01,auto or features.lengthscale=2,5"
        )
    return Axis(".".join(parts), found)


def asked(
    section: SweepSection | None, axes: Sequence[str], validation: float | None, repeats: int | None
) -> tuple[list[Axis], float, int] | None:
    """Axes, share of validation rows and seeds, by options where they are given, else by the file; None: no sweep.

    Args:
        section: Of the job file; None: it has none.
        axes: Options --sweep. One takes the place of the same key of the file.
        validation: Option --validation.
        repeats: Option --repeats, which alone is a sweep of one combination.

    Raises:
        ConfigError: An option is not of the form, or --validation has nothing to rank.
    """
    found = {key: Axis(key, tuple(values)) for key, values in (section.keys if section else {}).items()}
    given = [parse_axis(text) for text in axes]
    found |= {axis.key: axis for axis in given}
    if len({axis.key for axis in given}) < len(given):
        raise ConfigError("--sweep names a key twice; give all its values at once")
    if section is None and not axes and repeats is None:
        if validation is not None:
            raise ConfigError("--validation goes with --sweep; name keys and values with it")
        return None
    usual = VALIDATION if found else 0.0
    of_file = section.validation if section else None
    share = next((of for of in (validation, of_file) if of is not None), usual)
    return list(found.values()), share, repeats or (section.repeats if section else 1)


def trials(job: JobFile, axes: Sequence[Axis], *, validation: float, repeats: int = 1) -> list[Trial]:
    """Every combination of the axes' values, with its jobs; the first axis varies slowest.

    Args:
        job: The job.
        axes: Keys and values.
        validation: Share of the rows that settings are ranked on; 0: they are ranked on the test rows.
        repeats: Seeds for each, from the job's own up.

    Raises:
        ConfigError: A key or a value does not fit the job, there are too many runs, or the method leaves nothing that
            could be ranked.
    """
    _refuse_unfit(job, validation)
    keys = [_place(job, axis.key) for axis in axes]
    if len(set(keys)) != len(keys):
        raise ConfigError("--sweep names a key twice; give all its values at once")
    if decide := sorted(key for table, key in keys if table == "data" and key in _DEALING):
        raise ConfigError(f"--sweep data.{decide[0]}: it decides which rows rank, so it can be no key of a sweep")
    if repeats > 1 and ("", "seed") in keys:
        raise ConfigError("--sweep seed is what --repeats does, with a mean over the seeds; leave one of them out")
    grid = list(itertools.product(*(axis.values for axis in axes)))
    if len(grid) * repeats > MAX_RUNS:
        raise ConfigError(f"--sweep makes {len(grid) * repeats} runs, more than {MAX_RUNS}; give fewer values")
    found = []
    for values in grid:
        settings = dict(zip((axis.key for axis in axes), values, strict=True))
        whole = job.model_dump(mode="json", exclude_unset=True)
        for (table, key), value in zip(keys, values, strict=True):
            (whole.setdefault(table, {}) if table else whole)[key] = value
        where = f"--sweep {shown(settings)}" if settings else "--repeats"
        chosen = validated(JobFile, whole, where)
        if validation:
            whole["data"]["validation_fraction"] = validation
        seeds = [chosen.seed + i for i in range(repeats)]
        jobs = [validated(JobFile, {**whole, "seed": seed}, where) for seed in seeds]
        found.append(Trial(settings, tuple(jobs), chosen))
    return found


def _refuse_unfit(job: JobFile, validation: float) -> None:
    name = job.method.name
    if job.data is None or named_files(job):
        raise ConfigError(f"--sweep is for methods on data that name no file; {name} is none of them")
    if not method_of(job.method).leaves_model:
        raise ConfigError(f"--sweep compares models, and a job of method {name} leaves none; run it as it is")
    if job.data.validation_fraction:
        raise ConfigError("--sweep sets data.validation_fraction itself; leave it out of the job file")
    if validation and (reason := job.method.unused_keys(job.data.task).get(_KEY)):
        raise ConfigError(
            f"--validation: method {name} {reason}; give --validation 0 to see scores on test rows, which are then too "
            "good where they choose"
        )


def _place(job: JobFile, key: str) -> tuple[str, str]:
    """Table and key of a key as it is written; a bare one is of [method], else of where there is one of its name."""
    table, _, name = key.rpartition(".")
    if table == "method" or (not table and name in type(job.method).model_fields):
        return "method", name
    tables = {"": type(job), **{t: type(getattr(job, t)) for t in ("data", "features", "cohort")}}
    if table:
        if table not in tables:
            raise ConfigError(f"--sweep {key}: there is no such table; it is one of method, data, features, cohort")
        return table, name
    where = [t for t, section in tables.items() if name in getattr(section, "model_fields", {})]
    return (where[0], name) if len(where) == 1 else ("method", name)


def delivered(metrics: RoundMetrics) -> tuple[str, Scores]:
    """Name of the model that a job leaves, of those that were measured, and its pooled scores."""
    name = next((model for model in DELIVERED if metrics.pooled.get(model)), DELIVERED[-1])
    return name, metrics.pooled.get(name, {})


def best(outcomes: Sequence[Outcome], metric: str) -> int | None:
    """Place of the best mean among the combinations whose jobs all succeeded, the first of equals; None: none did."""
    sign = 1.0 if metric in LOWER_IS_BETTER else -1.0
    found = [(sign * score, i) for i, o in enumerate(outcomes) if not o.error and (score := o.of(metric)) is not None]
    return min(found)[1] if found else None


def table(outcomes: Sequence[Outcome], metric: str, place: int | None) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of text, in the order of the combinations; `place` of the best, None: none is told."""
    keys = list(outcomes[0].settings)
    repeated = len(outcomes[0].runs) > 1
    columns = [*keys, metric, *(["±"] if repeated else []), "loss", "rounds", "uploads", "seconds", ""]
    rows = []
    for i, outcome in enumerate(outcomes):
        last = outcome.runs[-1]
        rows.append(
            [
                *(str(outcome.settings[key]) for key in keys),
                number(outcome.of(metric)),
                *([number(outcome.error_of(metric))] if repeated else []),
                number(last.training.get("loss")),
                str(last.rounds),
                number(last.training.get("uploads"), 1),
                f"{sum(run.seconds for run in outcome.runs):.1f}",
                outcome.error or ("best" if i == place else ""),
            ]
        )
    return columns, rows


def as_json(outcome: Outcome, metric: str) -> dict[str, Any]:
    """JSON values of an outcome."""
    return {
        "settings": dict(outcome.settings),
        metric: outcome.of(metric),
        "standard_error": outcome.error_of(metric),
        "error": outcome.error,
        "runs": [
            {
                "scores": dict(run.scores),
                "training": dict(run.training),
                "curve": [list(point) for point in run.curve],
                "rounds": run.rounds,
                "seconds": round(run.seconds, 3),
                "error": run.error,
            }
            for run in outcome.runs
        ],
    }


def measured_rows(job: JobFile, validation: float) -> str:
    """On which rows combinations are ranked, in words."""
    return METHODS[job.method.name].measured_on(validation)


def shown(settings: Mapping[str, Any]) -> str:
    """A combination's keys and values, in words."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def number(value: float | None, digits: int = 4) -> str:
    """A number of a table; a dash: there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text
