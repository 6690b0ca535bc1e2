"""A job's report: one HTML file with its charts inside, made from `job.json` and `metrics.jsonl`.

`python -m kernfed.report.page FOLDER` writes it. The page needs no network and no script.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, select_autoescape

from kernfed import files
from kernfed.artifact_names import FINDINGS, JOB_JSON, METRICS_JSONL, REPORT
from kernfed.errors import DataError, KernfedError
from kernfed.jobs.metrics_file import TRAINING, MetricLine, read_metrics
from kernfed.methods.ending import EndFinding
from kernfed.metric_names import METRICS, ROW_SHARE, telling_first
from kernfed.report.charts import MAX_BARS, Series, bar_chart, line_chart, suits_log
from kernfed.report.sections import sections
from kernfed.wording import duration, flat, number

_LABELS = {
    **METRICS,
    "relative_distance_bound": "relative distance, at most",
    "objective": "objective",
    ROW_SHARE: "share of the training rows behind the round",
    "seconds": "seconds",
    "megabytes_per_second": "MB/s",
}
_TRAINING_FIRST = ("relative_distance_bound", "objective", "effective_kernels")
_RECENT = "recent"
"""Name under which a stream's rows since the measurement before are measured; jobs on streams have no test rows."""
_TRAINING_TITLES = {
    "relative_distance_bound": "Training: certified distance to the pooled solution",
    "objective": "Training: objective, less a constant",
    "effective_kernels": "Kernels in use, mean over clients",
}
_MODELS_FIRST = ("global", "personal", "local", "central")
_MAX_ROWS = 500
KIND_WORDS = {
    "summary": "summaries (counts, means, class names)",
    "mean_embedding": "mean embeddings",
    "sufficient_statistic": "sufficient statistics",
    "gradient": "gradients",
    "newton_step": "Newton steps",
    "prediction": "predictions",
    "model_update": "model updates",
    "collaboration_weights": "collaboration weights",
    "metric": "metrics",
    "unlabelled_sample": "unlabelled samples",
    "stored_statistic": "statistics that stay with the job",
}
"""What a reader of the page sees for each kind of information."""


@dataclass(frozen=True)
class Measured:
    """A job's metrics, arranged for the page."""

    lines: Sequence[MetricLine]
    validates: bool = False
    """Whether validation rows stood for the test rows."""

    def models(self) -> list[str]:
        """Models measured, in the order in which they are shown."""
        return _ordered({line.model for line in self.lines if line.model != TRAINING}, _MODELS_FIRST)

    @property
    def rows(self) -> str:
        """The rows that were measured on, in words."""
        told = "validation rows" if self.validates else "test rows"
        return "rows so far" if _RECENT in self.models() else told

    def metrics(self) -> list[str]:
        """Metrics of models, most telling first."""
        return telling_first({line.metric for line in self.lines if line.model != TRAINING})

    def clients(self) -> list[str]:
        """Clients with metrics of their own, sorted."""
        return sorted({line.client for line in self.lines if line.client is not None})

    def curve(self, metric: str, model: str) -> Series:
        """A pooled metric (or, for the model `training`, a number of the solver) by round."""
        found = [
            (line.round, line.value)
            for line in self.lines
            if line.client is None and line.model == model and line.metric == metric and math.isfinite(line.value)
        ]
        return Series(model, tuple(r for r, _ in found), tuple(v for _, v in found))

    def last(self, metric: str, model: str, client: str | None) -> float | None:
        """The last value, if there is one."""
        return self._last.get((client, model, metric))

    @functools.cached_property
    def _last(self) -> dict[tuple[str | None, str, str], float]:
        """The last value by client, model and metric: of a thousand clients there are too many to look for each."""
        return {(line.client, line.model, line.metric): line.value for line in self.lines if math.isfinite(line.value)}


def write_report(folder: Path) -> Path:
    """Write `report.html` from the other artifacts in a folder.

    Returns:
        Path of the report.

    Raises:
        DataError: `job.json` or `metrics.jsonl` is missing or not what a job writes.
    """
    html = render(read_record(folder), read_metrics(folder / METRICS_JSONL), read_told(folder))
    path = folder / REPORT
    files.replace(path, html.encode(), durable=False)  # `kernfed report` makes it again
    return path


def render(job: Mapping[str, Any], lines: Sequence[MetricLine], findings: Mapping[str, Any] | None = None) -> str:
    """The page as text.

    Args:
        job: Content of `job.json`.
        lines: Content of `metrics.jsonl`.
        findings: Content of `findings.json`, if the method left one.

    Raises:
        DataError: `job` lacks something.
    """
    try:
        data = job["settings"].get("data") or {}
        measured = Measured(lines, validates=bool(data.get("validation_fraction")))
        return template("report.html.j2").render(_page(job, measured, findings or {}))
    except (KeyError, TypeError, AttributeError) as err:
        raise DataError(f"job.json: not the record of a job ({type(err).__name__}: {err}); fetch it again") from err


def _page(job: Mapping[str, Any], measured: Measured, findings: Mapping[str, Any]) -> dict[str, Any]:
    metric, made = next(iter(measured.metrics()), None), sections()
    return {
        "job": job,
        "tiles": list(_tiles(job, measured, metric)),
        "charts": list(_charts(measured, metric)),
        "sections": [made[name](findings[name]) for name in _in_order(findings) if name in made],
        "table": _client_table(measured),
        "rows": measured.rows,
        "answers": _answers(job["answers"]),
        "settings": _settings(job),
        "submitted": when(job["submitted_at"]),
        "started": when(job["started_at"]),
        "finished": when(job["finished_at"]),
        "failures": job["failures"][:_MAX_ROWS],
        "notes": job["notes"][:_MAX_ROWS],
    }


def _settings(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Keys and values, and of a rule also the number that it came to in this job."""
    resolved: Mapping[str, float] = job.get("resolved", {})
    return [
        (key, f"{value} (here {resolved[key]:.6g})" if key in resolved else value)
        for key, value in flat(job["settings"], "not set")
    ]


def _in_order(findings: Mapping[str, Any]) -> list[str]:
    """Names of findings, the end of the job first."""
    return sorted(findings, key=lambda name: (name != EndFinding.name, name))


def _tiles(job: Mapping[str, Any], measured: Measured, metric: str | None) -> Iterable[tuple[str, str]]:
    """Headline numbers: name and value."""
    if metric is not None:
        for model in measured.models():
            value = measured.last(metric, model, None)
            if value is not None:
                yield f"{_label(metric)}, {model}", _number(value)
    rounds = f"{job['rounds_closed']} of {job['num_rounds']}" if job["num_rounds"] else str(job["rounds_closed"])
    yield "rounds", rounds
    yield "clients", str(len(job["clients"]))
    if job["started_at"] and job["finished_at"]:
        took = datetime.fromisoformat(job["finished_at"]) - datetime.fromisoformat(job["started_at"])
        yield "took", duration(took.total_seconds())
    bound = measured.last("relative_distance_bound", TRAINING, None)
    if bound is not None:
        yield "distance to optimum", f"≤ {bound:.1e}"


def _charts(measured: Measured, metric: str | None) -> Iterable[dict[str, str]]:
    if metric is not None:
        curves = [c for model in measured.models() if (c := measured.curve(metric, model)).rounds]
        if any(len(c.rounds) > 1 for c in curves):
            title = f"{_label(metric)} by round, over all clients' {measured.rows}"
            svg = line_chart(title, _label(metric), [c for c in curves if len(c.rounds) > 1])
            yield {"title": title, "svg": svg, "note": ""}
        clients = measured.clients()
        if clients:
            models = {
                model: [measured.last(metric, model, client) for client in clients[:MAX_BARS]]
                for model in measured.models()
            }
            models = {model: values for model, values in models.items() if any(v is not None for v in values)}
            title = f"{_label(metric)} at each client, on its own {measured.rows}"
            note = "" if len(clients) <= MAX_BARS else f"The first {MAX_BARS} of {len(clients)} clients."
            yield {"title": title, "svg": bar_chart(title, _label(metric), clients[:MAX_BARS], models), "note": note}
    recent = measured.curve("mse", _RECENT)
    if len(recent.rounds) > 1:
        title = "Mean squared error of the rows since the measurement before"
        log = suits_log(recent.values)
        note = "Rises where the data drift away from what was learned." + (" Logarithmic axis." if log else "")
        yield {"title": title, "svg": line_chart(title, _label("mse"), [recent], log=log), "note": note}
    names = {line.metric for line in measured.lines if line.model == TRAINING}
    if set(measured.curve(ROW_SHARE, TRAINING).values) == {1.0}:
        names -= {ROW_SHARE}
    for name in _ordered(names, _TRAINING_FIRST)[:2]:
        curve = measured.curve(name, TRAINING)
        if len(curve.rounds) > 1:
            log = suits_log(curve.values)
            title = _TRAINING_TITLES.get(name, f"Training: {_label(name)}")
            svg = line_chart(title, _label(name), [curve], log=log)
            yield {"title": title, "svg": svg, "note": "Logarithmic axis." if log else ""}


def _client_table(measured: Measured) -> dict[str, Any] | None:
    models, clients = measured.models(), measured.clients()
    if not clients:
        return None
    keys = [(metric, model) for metric in measured.metrics() for model in models]
    keys = [k for k in keys if any(measured.last(*k, client) is not None for client in clients)]
    rows = [
        (name, [_cell(measured.last(metric, model, client)) for metric, model in keys])
        for name, client in [*((c, c) for c in clients[:_MAX_ROWS]), ("all rows", None)]
    ]
    return {"columns": [(_label(metric), model) for metric, model in keys], "rows": rows}


def _answers(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Kinds of information that left, how often, in answer to which steps; clients that are alike share a row."""
    rows: dict[str, dict[str, Any]] = {}
    for client, steps in answers.items():
        counts: dict[str, int] = {}
        for step in steps:
            for kind in step["kinds"]:
                counts[kind] = counts.get(kind, 0) + step["count"]
        kinds = [(KIND_WORDS.get(kind, kind), counts[kind]) for kind in _ordered(set(counts), tuple(KIND_WORDS))]
        row = rows.setdefault(json.dumps([kinds, steps]), {"clients": [], "kinds": kinds, "steps": steps})
        row["clients"].append(client)
    return list(rows.values())[:_MAX_ROWS]


def template(name: str, **filters: Callable[[str], str]) -> Template:
    """A template of this package; what it is not given is an error.

    Args:
        name: Its file; where it ends on `.html.j2`, signs of HTML in a text are escaped.
        filters: What it may do with a text, by name.
    """
    environment = Environment(
        loader=PackageLoader("kernfed.report", "templates"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(name)


def read_record(folder: Path) -> dict[str, Any]:
    """Content of `job.json`.

    Raises:
        DataError: It is missing or not what a job writes.
    """
    return _read_object(folder / JOB_JSON, "the record")


def read_told(folder: Path) -> dict[str, Any]:
    """Content of `findings.json`; empty where the job left none.

    Raises:
        DataError: It is not what a job writes.
    """
    path = folder / FINDINGS
    return _read_object(path, "the findings") if path.exists() else {}


def _read_object(path: Path, what: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise DataError(f"{path}: cannot be read ({err.strerror}); give the folder of a finished job") from err
    except ValueError as err:
        raise DataError(f"{path}: not JSON ({err}); fetch the file again") from err
    if not isinstance(found, dict):
        raise DataError(f"{path}: not {what} of a job; fetch the file again")
    return found


def _ordered(names: set[str], first: Sequence[str]) -> list[str]:
    return [name for name in first if name in names] + sorted(names - set(first))


def _label(metric: str) -> str:
    return _LABELS.get(metric, metric.replace("_", " "))


def _number(value: float) -> str:
    return f"{value:.2e}" if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e6) else number(value)


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else _number(value)


def when(text: str | None) -> str:
    """A moment of a record, in words."""
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if text else "never"


def main(arguments: Sequence[str]) -> int:
    """Write the report of the folder named in the arguments; returns an exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m kernfed.report.page FOLDER\n")
        return 2
    try:
        write_report(Path(arguments[0]))
    except KernfedError as err:
        sys.stderr.write(f"error: {err}\n")
        return err.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
