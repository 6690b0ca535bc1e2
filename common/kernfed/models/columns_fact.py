"""Columns with types in the file of a model, of whatever kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kernfed.adapters import adapter
from kernfed.columns.plan import ColumnPlan

_KEY = "columns"


def columns_fact(plans: Sequence[ColumnPlan]) -> dict[str, Any]:
    """What a model's facts say of its columns, JSON values; nothing where they are those of the table."""
    return {_KEY: [asdict(plan) for plan in plans]} if plans else {}


def columns_of_facts(facts: Mapping[str, Any]) -> tuple[ColumnPlan, ...]:
    """What `columns_fact` gave.

    Raises:
        ValueError: It is not of that form.
    """
    found: tuple[ColumnPlan, ...] = adapter(tuple[ColumnPlan, ...]).validate_python(facts.get(_KEY, ()), strict=False)
    return found
