"""How a file writes the cells of a column: separators, codes, gaps and units, as the client file says."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from kernfed.section import Section

Decimal = Literal[".", ","]
Thousands = Literal["", ".", ",", " ", "'"]


class CellSection(Section):
    """The way in which a file writes one column."""

    decimal: Decimal | None = Field(None, description="What stands before the decimals; unset: as in the file.")
    thousands: Thousands | None = Field(
        None, description="What stands between groups of three digits; unset: as in the file."
    )
    missing: list[str] = Field([], description="Cells that stand for a gap in this column, beside those of the file.")
    values: dict[str, str] = Field(
        {}, description='Cells of this file, each with what it means to the job: `"M" = "male"`, `"<5" = "2.5"`.'
    )
    unit: str | None = Field(
        None, min_length=1, max_length=64, description="Unit of the column's numbers in this file."
    )
    convert: dict[str, float | tuple[float, float]] = Field(
        {},
        description="Units that jobs ask for, each with the factor from the file's, or the factor and what is added "
        'then: `"mmol/l" = 0.02586`, `"F" = [1.8, 32]`.',
    )
    date_format: str | None = Field(
        None, min_length=1, max_length=64, description="Form of the column's dates, e.g. %d.%m.%Y; unset: 2020-01-31."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_separators(self.decimal, self.thousands)
        if self.convert and self.unit is None:
            raise ValueError("convert needs unit, the unit of this file; add it, or remove convert")
        for unit, given in self.convert.items():
            if unit == self.unit or (given if isinstance(given, float) else given[0]) == 0:
                raise ValueError(f"convert: {unit!r} is the file's own unit, or has the factor 0; correct or remove it")
        return self

    def knows_unit(self, asked: str) -> bool:
        """Whether numbers can be had in a unit; any is believed where this file states none."""
        return not asked or self.unit in (None, asked) or asked in self.convert

    def conversion(self, asked: str) -> tuple[float, float]:
        """Factor and addend from the file's numbers to those of a unit that is known."""
        given = self.convert.get(asked, 1.0) if asked and asked != self.unit else 1.0
        return given if isinstance(given, tuple) else (float(given), 0.0)

    def plain(self, text: str) -> str | None:
        """A number as Python writes it; text that is none as it is; None where its separators are not those said."""
        mark, between = self.decimal or ".", self.thousands or ""
        if mark == "." and not between:
            return text
        cell = text.strip()
        if not re.fullmatch(r"[-+0-9.,' eE]+", cell):
            return text
        other = "." if mark == "," else ","
        whole, at, rest = cell.partition(mark)
        if between and between in whole:
            if not re.fullmatch(rf"[+-]?\d{{1,3}}({re.escape(between)}\d{{3}})+", whole):
                return None
            whole = whole.replace(between, "")
        if other in whole + rest or mark in rest or (between and between in rest):
            return None
        return f"{whole}.{rest}" if at else whole


def check_separators(decimal: str | None, thousands: str | None) -> None:
    """Refuse separators that cannot be told apart.

    Raises:
        ValueError: Both are the same.
    """
    if thousands and thousands == (decimal or "."):
        raise ValueError(f"thousands and decimal are both {thousands!r}; set one of them to another character")
