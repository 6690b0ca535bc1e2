"""Coefficients of a likelihood in a report, and what their standard errors are, in words."""

from __future__ import annotations

from kernfed.maths.likelihood.inference import Coefficient
from kernfed.wording import number, p_value


def cells_of(found: Coefficient) -> list[str]:
    """Cells of a table: name, estimate, standard error, statistic and p."""
    told = [number(found.estimate), number(found.error), f"{found.statistic:.2f}", p_value(found.p_value)]
    return [found.name, *told]


def about_errors(errors: str, groups: int | None, what: str) -> str:
    """A sentence on standard errors.

    Args:
        errors: `model`, or how they are robust.
        groups: Of the sandwich; None: there is none.
        what: Its parts are, in words.
    """
    if groups is None:
        return "Standard errors are the model's."
    return f"Standard errors are {errors}: a sandwich of {groups:,} {what}."
