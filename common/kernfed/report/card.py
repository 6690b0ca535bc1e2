"""A model's card, as Markdown and as a page: what it takes and predicts, who is behind it, how good it is, its limits.

Made from the files that a job left: `model.json`, `job.json` and `findings.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernfed import files
from kernfed.artifact_names import MODEL_FACTS
from kernfed.columns.plan import ColumnKind, ColumnPlan, MissingRule
from kernfed.errors import DataError
from kernfed.maths.losses import Link
from kernfed.maths.tasks import TASKS
from kernfed.methods.choice import ChoiceFinding
from kernfed.methods.ending import EndFinding
from kernfed.methods.finding import reading
from kernfed.methods.scores import ScoresFinding
from kernfed.methods.shares import SharesFinding
from kernfed.models.base import Model
from kernfed.models.folder import facts_sha256
from kernfed.models.global_model import GlobalModel
from kernfed.models.network_model import load_predictor
from kernfed.report.page import read_record, read_told, template, when
from kernfed.report.parts import Section, TableOf
from kernfed.report.sections import sections
from kernfed.wording import listed, number

MARKDOWN, PAGE = "model-card.md", "model-card.html"
FEW_ROWS = 100
"""Measured rows below which the card says that its scores are of few."""
_FIRST = (SharesFinding.name, ScoresFinding.name, EndFinding.name, ChoiceFinding.name)
_SIGNS = re.compile(r"([\\`*_<>#|]|\](?=[(\[:]))")
_TOLD = ("end: ", "verdict: ", "equity: ")
"""Notes that sections tell."""


def write_card(folder: Path) -> tuple[Path, Path]:
    """Write `model-card.md` and `model-card.html` beside a model.

    Returns:
        Their paths.

    Raises:
        ConfigError: There is no model that can be loaded.
        DataError: `job.json` or `findings.json` is missing or not what a job writes.
    """
    model, job, findings = load_predictor(folder), read_record(folder), read_told(folder)
    try:
        told = _card(model, job, findings, facts_sha256(folder))
    except (KeyError, TypeError, AttributeError, ValueError) as err:
        raise DataError(f"{folder}: not the files of a job ({type(err).__name__}: {err}); fetch them again") from err
    paths = folder / MARKDOWN, folder / PAGE
    for path in paths:
        files.replace(
            path, template(f"{path.name}.j2", plain=plain).render(told).encode(), durable=False
        )  # the command makes it again
    return paths


def plain(text: str) -> str:
    """Text in Markdown that reads as it is, whatever signs are in it, on one line."""
    return " ".join(_SIGNS.sub(r"\\\1", text).split())


def _card(model: Model, job: Mapping[str, Any], findings: Mapping[str, Any], digest: str) -> dict[str, Any]:
    target = str(getattr(model, "target", "")) or "the target"
    made = sections()
    order = [*_FIRST, *sorted(set(findings) - set(_FIRST))]
    return {
        "title": f"Model card: {job['name']}",
        "summary": f"Predicts {target} from {len(_columns(model))} columns{_classes(model)}, by the method "
        f"{job['method']}, trained by {len(job['clients'])} clients whose rows stayed with them.",
        "sections": [
            Section("The model", table=TableOf(["fact", "value"], list(_facts(model, job, target, digest)))),
            Section(
                "What it takes",
                _TAKES,
                table=TableOf(["column", "what it is", "gaps", "mean ± deviation"], _columns(model)),
            ),
            *(made[name](findings[name]) for name in order if name in made and name in findings),
        ],
        "limits": list(_limits(model, job, findings)),
    }


_TAKES = (
    "Raw rows, in the units of the job. Mean and deviation are those that the model scales by, over the training rows "
    "of all clients."
)


def _classes(model: Model) -> str:
    return f" ({listed(model.classes, 6)})" if model.classes else ""


def _facts(model: Model, job: Mapping[str, Any], target: str, digest: str) -> Iterator[tuple[str, str]]:
    yield "target", target
    yield "task", str(model.task)
    if model.classes:
        yield "classes", ", ".join(model.classes)
    yield "method", f"{job['method']}, {job['rounds_closed']} rounds"
    yield (
        "job",
        f"{job['job_id']}, submitted by {job['submitted_by']}, ended {when(job['finished_at'])}, {job['state']}",
    )
    if isinstance(model, GlobalModel):
        yield "features", f"{model.spec.kernel} kernel, {model.spec.num_features:,} features"
    yield "kernfed", str(model.job.get("kernfed", "of an older release"))
    yield f"SHA-256 of {MODEL_FACTS}", digest


def _columns(model: Model) -> list[tuple[str, str, str, str]]:
    """Name, type, rule for gaps, and scale of each column of the table."""
    scales = zip(model.mean, model.deviation, strict=True)  # type: ignore[attr-defined]  # every model that a job leaves has them
    spread = dict(zip(model.feature_names, scales, strict=True))
    rule = MissingRule(model.job.get("missing", MissingRule.REFUSE))
    plans = model.columns or [
        ColumnPlan(name=name, kind=ColumnKind.NUMBER, missing=rule, settled=True) for name in model.feature_names
    ]
    return [(plan.name, _kind(plan), _gaps(plan), _spread(plan, spread)) for plan in plans]


def _kind(plan: ColumnPlan) -> str:
    words = [f"{plan.kind} in {plan.unit}" if plan.unit else str(plan.kind)]
    words += [f"taken at {number(plan.clip[0])} to {number(plan.clip[1])}"] if plan.clip else []
    words += ["log(1 + x)"] if plan.log1p else ["rank among all clients' rows"] if plan.rank else []
    words += [f"days since {plan.since}"] if plan.since and not plan.parts else []
    words += [", ".join(plan.parts)] if plan.parts else []
    words += [f"levels {listed(plan.levels, 12)}; others: {plan.unknown}"] if plan.levels else []
    return "; ".join(words)


def _gaps(plan: ColumnPlan) -> str:
    if plan.fills and plan.has_number:
        return f"{plan.missing}: {number(plan.fill)}"
    return str(plan.missing)


def _spread(plan: ColumnPlan, spread: Mapping[str, tuple[float, float]]) -> str:
    if not plan.has_number or plan.name not in spread:
        return ""
    mean, deviation = spread[plan.name]
    return f"{number(mean)} ± {number(deviation)}"


def _limits(model: Model, job: Mapping[str, Any], findings: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"Trained and measured on rows of {listed(job['clients'], 12)}. Nothing here says how good it is elsewhere, or "
        "on rows far from the means above."
    )
    if job["state"] != "succeeded":
        yield f"Its job ended {job['state']}: {job['error_message']}"
    if ScoresFinding.name in findings:
        rows = reading(ScoresFinding, lambda found: found.num_rows)(findings[ScoresFinding.name])
        if rows < FEW_ROWS:
            yield f"Its scores are of {rows:,} rows. Their intervals are wide."
    else:
        yield "No test rows stand behind it: how good it is was not measured."
    if TASKS[model.task].has_classes and getattr(model, "link", None) is Link.IDENTITY:
        yield "Its scores are least-squares fits of 0 and 1. They rank rows, and are no calibrated probabilities."
    if note := model.job.get("note"):
        yield str(note)
    yield from (str(note["message"]) for note in job["notes"] if not str(note["message"]).startswith(_TOLD))
