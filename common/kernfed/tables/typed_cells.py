"""Cells of columns with types: from what a file holds to one number, by the job's plan and the file's way to write.

A client file says how its file writes a column (`kernfed.jobs.client_cells`): separators, codes, units, tokens of gaps.
A job says what the column is (`kernfed.columns.plan`). A cell that fits neither is a problem in words, which never hold
the cell's content.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kernfed.columns.plan import MISSING, ColumnKind, ColumnPlan, MissingRule, UnknownRule
from kernfed.jobs.client_cells import CellSection
from kernfed.jobs.client_file import PartitionFile
from kernfed.tables.cells import Misread, label_text, missing_numbers, read_label, read_value
from kernfed.wording import is_class_name, listed

_TRUTH = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
_DAY_S = 86_400.0
_MOST_KEPT = 1 << 16
"""Texts of which the number is remembered."""

Setting = Callable[[str], str | None]


class CellReader:
    """Reads the cells of one column."""

    def __init__(self, plan: ColumnPlan, file: PartitionFile, how: CellSection | None, setting: Setting) -> None:
        """Begin.

        Args:
            plan: What the job makes of the column. Of a category that is not settled all levels are taken, and kept in
                `levels` in the order in which they come.
            file: Says which cells are gaps in all of its columns.
            how: The way in which the file writes this one; None: as all others.
            setting: What the reader of a message calls a setting of the file.
        """
        self._plan, self._how = plan, how or CellSection()
        self._file = file.model_copy(update={"missing": [*file.missing, *self._how.missing]})
        self._no_value = missing_numbers(self._file)
        self._setting = setting
        self._known: dict[str, float | str] = {}
        self.levels: dict[str, int] = {name: place for place, name in enumerate(plan.cells)}
        """Level to its place."""
        self._scale, self._shift = self._how.conversion(plan.unit)
        self._since = datetime.datetime.fromisoformat(plan.since) if plan.since else datetime.datetime.min

    def read(self, value: object) -> float | str:
        """The number of a cell, NaN for a gap; or its problem, in words."""
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, str):
            return self._read(value)
        found = self._known.get(value)
        if found is None:
            found = self._read(value)
            if len(self._known) < _MOST_KEPT:
                self._known[value] = found
        return found

    def _read(self, value: object) -> float | str:
        if self._is_gap(value):
            return self._gap
        mapped = self._mapped(value)
        if mapped is None and isinstance(value, str) and self._plan.kind is ColumnKind.NUMBER:
            plain = self._how.plain(value)
            if plain is None:
                return self._problem("a number that is written otherwise than was said", "decimal or thousands")
            value = plain
        return _READERS[self._plan.kind](self, value if mapped is None else mapped)

    def _mapped(self, value: object) -> str | None:
        """What a cell means by the client file's `values`; None: itself."""
        text = label_text(value) if isinstance(value, str | float | bool | int) else None
        if text is None or not self._how.values:
            return None
        return next(
            (v for key in (value, text, text.strip()) if (v := self._how.values.get(str(key))) is not None), None
        )

    def _is_gap(self, value: object) -> bool:
        if value is None or (
            isinstance(value, str) and (value in self._file.missing or value.strip() in self._file.missing)
        ):
            return True
        if isinstance(value, float | datetime.datetime) and value != value:  # NaN, and what pandas has for no time
            return True
        return isinstance(value, int | float) and not isinstance(value, bool) and value in self._no_value

    @property
    def _gap(self) -> float:
        plan = self._plan
        if plan.kind is ColumnKind.CATEGORY and plan.missing is MissingRule.INDICATOR and plan.settled:
            return float(self.levels[MISSING])
        return math.nan

    def number(self, value: object) -> float | str:
        """A number in the job's unit."""
        found = read_value(value, self._file)
        if not isinstance(found, float):
            if found is Misread.NAN:
                return self._problem("infinite or not a number", "missing")
            return self._problem(Misread.TEXT.value, "values or missing") if found is Misread.TEXT else found.value
        found = found * self._scale + self._shift
        least = max(found, self._plan.clip[0]) if self._plan.clip else found
        if self._plan.log1p and least <= -1.0:
            return "a number of -1 or less, of which there is no log(1 + x); correct it, or clip the column in the job"
        return found

    def level(self, value: object) -> float | str:
        """The place of a level; of one that the job does not know and takes, one behind all others."""
        label = read_label(value, ())
        if label is None:
            return self._gap
        place = self.levels.get(label)
        plan = self._plan
        if place is not None and (label in plan.levels or not plan.settled):
            return float(place)
        if not plan.settled:
            if not is_class_name(label):
                return "a level of more than 256 characters, or with control characters; correct it"
            return float(self.levels.setdefault(label, len(self.levels)))
        if plan.unknown is UnknownRule.OTHER or (plan.unknown is UnknownRule.MISSING and MISSING in self.levels):
            return float(self.levels.setdefault(label, len(self.levels)))
        if plan.unknown is UnknownRule.MISSING:
            return math.nan
        known = listed(plan.levels, more=", ...")
        return self._problem(f"a level that the job does not know (it knows {known})", "values")

    def truth(self, value: object) -> float | str:
        """1 for true and yes, 0 for false and no."""
        label = read_label(value, ())
        if label is None:
            return math.nan
        found = _TRUTH.get(label.casefold())
        return self._problem("neither true nor false (nor yes, no, 1, 0)", "values") if found is None else found

    def days(self, value: object) -> float | str:
        """Days since the plan's day."""
        try:
            moment = self._moment(value)
        except (ValueError, OverflowError):
            moment = None
        if moment is None:
            shape = self._how.date_format or "2020-01-31, with a time behind it or not"
            return self._problem(f"no date of the form {shape}", "date_format")
        if moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
        return (moment - self._since).total_seconds() / _DAY_S

    def _moment(self, value: object) -> datetime.datetime | None:
        if isinstance(value, datetime.datetime):
            return value
        if isinstance(value, datetime.date):
            return datetime.datetime(value.year, value.month, value.day)  # days have no zone
        if not isinstance(value, str):
            return None
        text = value.strip()
        if self._how.date_format is not None:
            return datetime.datetime.strptime(text, self._how.date_format)  # days have no zone
        return datetime.datetime.fromisoformat(text) if re.match(r"\d{4}-\d\d-\d\d", text) else None

    def _problem(self, what: str, setting: str) -> str:
        place = self._setting("cells")
        return f"{what}; correct it" + ("" if place is None else f", or set {setting} for it in {place}")


_READERS: Mapping[ColumnKind, Callable[[CellReader, object], float | str]] = {
    ColumnKind.NUMBER: CellReader.number,
    ColumnKind.CATEGORY: CellReader.level,
    ColumnKind.ORDINAL: CellReader.level,
    ColumnKind.BOOLEAN: CellReader.truth,
    ColumnKind.DATE: CellReader.days,
}


def cell_readers(
    plans: Sequence[ColumnPlan], file: PartitionFile, wanted: Sequence[str], setting: Setting
) -> dict[str, CellReader]:
    """A reader for each of the wanted columns that is no plain number, or is written otherwise than others."""
    readers = {}
    of_job = {plan.name: plan for plan in plans}
    for name in wanted:
        plan, how = of_job.get(name), file.cells_of(name)
        if plan is not None and not (is_plain(plan) and how is None):
            readers[name] = CellReader(plan, file, how, setting)
        elif plan is None and how is not None:
            plain = ColumnPlan(name=name, kind=ColumnKind.NUMBER, missing=MissingRule.REFUSE, settled=True)
            readers[name] = CellReader(plain, file, how, setting)
    return readers


def is_plain(plan: ColumnPlan) -> bool:
    """Whether a column's cells are numbers as they are."""
    return plan.kind is ColumnKind.NUMBER and not plan.log1p
