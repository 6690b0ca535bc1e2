"""Rows that are made up to compare a model's file with it: of each column what the model was trained on, about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernfed.arrays import Array, Flags
from kernfed.columns.plan import ColumnKind, ColumnPlan
from kernfed.models.base import Model
from kernfed.models.onnx.cells import IS_TEXT

if TYPE_CHECKING:
    import pandas as pd

_DAY_0 = np.datetime64("1970-01-01", "D")


def made_up_cells(model: Model, num_rows: int) -> tuple[pd.DataFrame | Array, dict[str, Array]]:
    """The same rows for a model and for its ONNX file.

    Args:
        model: With `mean` and `deviation` of its d feature columns.
        num_rows: Rows n.

    Returns:
        A data frame, or numbers (n, d) where columns have no types; and the inputs by name.
    """
    draw = np.random.default_rng(0)
    spread = _spread(model)
    if not model.columns:
        x = np.stack([mean + deviation * draw.standard_normal(num_rows) for mean, deviation in spread.values()], axis=1)
        return x, {"rows": x}
    import pandas as pd  # noqa: PLC0415  # models whose columns have no types do without

    made = {plan.name: _cells(plan, spread, num_rows, draw) for plan in model.columns}
    frame = pd.DataFrame({name: cells for name, (cells, _) in made.items()})
    return frame, {name: values[:, None] for name, (_, values) in made.items()}


def _spread(model: Model) -> dict[str, tuple[float, float]]:
    """Mean and deviation by feature column."""
    both = zip(model.mean, model.deviation, strict=True)  # type: ignore[attr-defined]  # models with an ONNX form have them
    return dict(zip(model.feature_names, both, strict=True))


def _cells(
    plan: ColumnPlan, spread: dict[str, tuple[float, float]], num: int, draw: np.random.Generator
) -> tuple[Array, Array]:
    """Cells as a data frame holds them, and as the file takes them; a tenth are gaps where a rule fills these."""
    gap = (draw.random(num) < 0.1) & _may_lack(plan)
    if plan.kind in IS_TEXT:
        text = np.array(plan.levels, dtype=object)[draw.integers(len(plan.levels), size=num)]
        return _without(text, gap), np.where(gap, "", text)
    mean, deviation = spread.get(plan.name, (0.0, 100.0))
    numbers = mean + deviation * draw.standard_normal(num)
    if plan.kind is ColumnKind.BOOLEAN:
        numbers = (numbers > mean).astype(np.float64)
    elif plan.kind is ColumnKind.DATE:
        days = np.clip(np.rint(numbers), -100_000, 100_000).astype("timedelta64[D]") + np.datetime64(plan.since, "D")
        return _without(days.astype(str).astype(object), gap), np.where(gap, np.nan, (days - _DAY_0).astype(np.float64))
    elif plan.rank:
        numbers = np.interp(draw.random(num), np.linspace(0, 1, len(plan.knots)), plan.knots)
    elif plan.log1p:
        numbers = np.maximum(np.expm1(numbers), -0.5)
    return np.where(gap, np.nan, numbers), np.where(gap, np.nan, numbers)


def _without(cells: Array, gap: Flags) -> Array:
    found = cells.copy()
    found[gap] = None
    return found


def _may_lack(plan: ColumnPlan) -> bool:
    return plan.fills or (plan.kind is ColumnKind.CATEGORY and bool(plan.families) and plan.missing == "indicator")
