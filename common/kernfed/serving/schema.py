"""What a served model takes and gives, as JSON values."""

from __future__ import annotations

from typing import Any

from kernfed.columns.plan import ColumnKind, ColumnPlan, columns_of
from kernfed.models.estimator import Classifier, Estimator

_TYPES = {
    ColumnKind.NUMBER: "number",
    ColumnKind.BOOLEAN: "true or false",
    ColumnKind.DATE: "date, e.g. 2020-01-31",
    ColumnKind.CATEGORY: "text, one of levels",
    ColumnKind.ORDINAL: "text, one of levels",
}


def columns(model: Estimator) -> tuple[str, ...]:
    """Columns that a row must have."""
    return columns_of(model.model.columns, model.model.feature_names)


def schema(model: Estimator, version: str) -> dict[str, Any]:
    """Columns with types, levels and units; the target; and the classes."""
    plans = {plan.name: plan for plan in model.model.columns}
    found: dict[str, Any] = {
        "model": version,
        "target": str(getattr(model.model, "target", "")),
        "task": str(model.model.task),
        "columns": [{"name": name, **_column(plans.get(name))} for name in columns(model)],
    }
    if isinstance(model, Classifier):
        found["classes"] = [str(name) for name in model.classes_.tolist()]
    return found | ({"note": str(model.model.job["note"])} if model.model.job.get("note") else {})


def _column(plan: ColumnPlan | None) -> dict[str, Any]:
    if plan is None:
        return {"type": "number", "gaps": "refuse"}
    told: dict[str, Any] = {"type": _TYPES[plan.kind], "gaps": str(plan.missing)}
    told |= {"unit": plan.unit} if plan.unit else {}
    return told | ({"levels": list(plan.levels), "unknown": str(plan.unknown)} if plan.levels else {})
