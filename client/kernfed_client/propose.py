"""`kernfed-client check-data` without a job: the `[data]` section that a file suggests, and columns to look at twice.

All of it is about this site's training partition, and stays here until somebody sends it on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernfed.arrays import Floats
from kernfed.columns.plan import ColumnKind, ColumnPlan, MissingRule
from kernfed.errors import ConfigError
from kernfed.jobs.client_file import DatasetSection, PartitionFile, format_by_suffix, load_client_file
from kernfed.jobs.toml_text import toml_text
from kernfed.tables.cells import read_label
from kernfed.tables.raw_table import Source
from kernfed.tables.read import read_with_text
from kernfed.tables.typed_cells import CellReader
from kernfed.wording import listed

_MOST_CLASSES = 20
"""Most different numbers of a target that are taken for classes."""
_FEWEST_ROWS = 20
"""Of fewer rows nothing is suspicious: by chance alone all may be different, or be told by another column."""


@dataclass(frozen=True, slots=True)
class ColumnGlance:
    """A column of the file, by its name in jobs."""

    name: str
    kind: str
    """A type of `[data.columns]`."""
    different: int
    """Different values."""
    gaps: int
    """Rows without a value."""
    suspicious: str
    """Why the column is likely no feature; empty: it may be one."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a data set suggests to whoever writes a job for it."""

    dataset: str
    num_rows: int
    columns: list[ColumnGlance]
    data: dict[str, Any]
    """The section, JSON values."""
    notes: list[str]


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: ColumnKind
    values: Floats
    """Numbers, days, or places of levels, (n,); NaN: no value."""

    @property
    def there(self) -> Floats:
        found: Floats = self.values[~np.isnan(self.values)]
        return found

    @property
    def different(self) -> int:
        return len(np.unique(self.there))


def propose(config_path: Path, dataset: str | None = None, target: str | None = None) -> Proposal:
    """Look at the training partition of a data set.

    Args:
        config_path: The client file.
        dataset: Name of the data set; unset: the only one, or the one that is called default.
        target: Column to predict; unset: the last one.

    Raises:
        ConfigError: The file is wrong, or has no such data set.
        DataError: The partition cannot be read, or has no such column.
    """
    file = load_client_file(config_path)
    dataset = dataset or (next(iter(file.datasets)) if len(file.datasets) == 1 else "default")
    section = file.datasets.get(dataset)
    if section is None:
        there = listed(sorted(file.datasets)) or "none"
        raise ConfigError(f"{config_path}: no data set {dataset!r}; it has {there}: name one of them with --dataset")
    source, columns = _columns(section, dataset)
    names = [column.name for column in columns]
    if target is not None and target not in names:
        source.refuse(f"column {target!r} is missing; --target takes one of {listed(names, 12, more=', ...')}")
    wanted = columns[-1 if target is None else names.index(target)]
    group = next((column.name for column in columns if source.in_file(column.name) == section.group), None)
    glances = [_glance(column, wanted, columns[:place], group) for place, column in enumerate(columns)]
    features = [g for g in glances if g.name != wanted.name and not g.suspicious]
    if not features:
        source.refuse(f"has no column that looks like a feature beside target {wanted.name!r}; see --target")
    data = _section(wanted, [column for column in columns if column.name in {g.name for g in features}])
    notes = [f"{g.name} is left out: {g.suspicious}" for g in glances if g.suspicious and g.name != wanted.name]
    if target is None:
        notes.insert(0, f"the target is the last column, {wanted.name!r}; --target COLUMN takes another")
    if wanted.different < 2:
        notes.append(f"target {wanted.name!r} is the same in all rows, so there is nothing to predict")
    if lacking := int(np.isnan(wanted.values).sum()):
        rows = "row lacks" if lacking == 1 else "rows lack"
        notes.append(f'{lacking:,} {rows} the target; complete the data, or write missing = "drop-rows"')
    notes += [
        f"{g.name}: more than half of the rows have no value" for g in features if 2 * g.gaps > len(wanted.values)
    ]
    if wanted.kind is ColumnKind.DATE:
        notes.append(f"target {wanted.name!r} is a date, which no method predicts; name another with --target")
    return Proposal(dataset, len(wanted.values), glances, data, notes)


def as_json(proposal: Proposal) -> dict[str, Any]:
    """The proposal as JSON types."""
    return asdict(proposal)


def as_table(proposal: Proposal) -> RenderableType:
    """The proposal for people."""
    table = Table("column", "type", "different", "gaps", "", title=f"{proposal.num_rows:,} rows (stays here)")
    for glance in proposal.columns:
        name, suspicious = Text(glance.name), Text(glance.suspicious)
        table.add_row(name, glance.kind, f"{glance.different:,}", f"{glance.gaps:,}", suspicious)
    notes = [Text(f"note: {note}") for note in proposal.notes]
    head = Text(f"data set {proposal.dataset}: a [data] section for a job file", style="bold")
    return Group(table, *notes, head, Text(toml_text({"data": proposal.data}), no_wrap=True, overflow="ignore"))


def _columns(section: DatasetSection, dataset: str) -> tuple[Source, list[_Column]]:
    file = section.train
    name = file.format or format_by_suffix(file.path)
    where = f"data set {dataset}, train ({file.path.name})"
    if name in ("npz", "images"):
        raise ConfigError(f"{where}: types are proposed for tables of text or Parquet, and this is {name}")
    file = file.model_copy(update={"format": name or "csv"})
    source = Source(file, where, (), setting=lambda key: f"`{key}` of [datasets.{dataset}.train] in the client file")
    text, _ = read_with_text(source)
    of_job = {in_file: column for column, in_file in file.columns.items()}
    cells = zip(*text.rows, strict=True)
    return source, [
        _typed(of_job.get(name.strip(), name.strip()), column, source)
        for name, column in zip(text.names, cells, strict=True)
    ]


def _typed(name: str, cells: Sequence[str], source: Source) -> _Column:
    """A column by the first type that all of its cells fit."""
    number = {cell: i for i, cell in enumerate(dict.fromkeys(cells))}
    different, place = list(number), np.array([number[cell] for cell in cells], dtype=np.int64)
    for kind in (ColumnKind.NUMBER, ColumnKind.BOOLEAN, ColumnKind.DATE):
        found = _read_as(kind, name, different, source.file)
        if found is not None and not (kind is ColumnKind.NUMBER and _are_words(different, source.file)):
            return _Column(name, kind, found[place])
    reader = _reader(ColumnKind.CATEGORY, name, source.file)
    read = [reader.read(cell) for cell in different]
    # A text that can be no level is one all the same: of a column of free text.
    codes = [code if isinstance(code, float) else -1.0 - i for i, code in enumerate(read)]
    return _Column(name, ColumnKind.CATEGORY, np.array(codes)[place])


def _read_as(kind: ColumnKind, name: str, cells: Sequence[str], file: PartitionFile) -> Floats | None:
    """Different cells as values of a type, (u,); None: one does not fit."""
    reader, found = _reader(kind, name, file), list[float]()
    for cell in cells:
        value = reader.read(cell)
        if not isinstance(value, float):
            return None
        found.append(value)
    return np.array(found)


def _reader(kind: ColumnKind, name: str, file: PartitionFile) -> CellReader:
    plan = ColumnPlan(
        name=name,
        kind=kind,
        missing=MissingRule.REFUSE,
        settled=kind is not ColumnKind.CATEGORY,
        since="1970-01-01" if kind is ColumnKind.DATE else "",
    )
    return CellReader(plan, file, file.cells_of(name), lambda _: None)


def _are_words(cells: Sequence[str], file: PartitionFile) -> bool:
    """Whether cells are the words true and false, which count as numbers too."""
    words = {label.casefold() for cell in cells if (label := read_label(cell, file.missing)) is not None}
    return bool(words) and words <= {"true", "false"}


def _glance(column: _Column, target: _Column, before: Sequence[_Column], group: str | None) -> ColumnGlance:
    gaps = int(np.isnan(column.values).sum())
    suspicious = "" if column is target else _suspicion(column, target, before, group)
    return ColumnGlance(column.name, str(column.kind), column.different, gaps, suspicious)


def _suspicion(column: _Column, target: _Column, before: Sequence[_Column], group: str | None) -> str:
    num, different = len(column.there), column.different
    if column.name == group:
        return "it names groups, and a site keeps such names to itself"
    if different < 2:
        return "it has no value" if different == 0 else "it is the same in all rows"
    if num < _FEWEST_ROWS:
        return ""
    whole = column.kind is ColumnKind.NUMBER and _whole(column.there)
    if different == num and whole and np.ptp(column.there) < 2 * num:
        return "it looks like a number of rows: a whole number, and another one in each"
    if different == num and whole and column.there.min() >= 1000:
        return "it looks like an identifier: a whole number, and another one in each row"
    if column.kind is ColumnKind.CATEGORY and 2 * different > num:
        return "it looks like names, or free text: most rows have a value of their own"
    if _tells(column, target):
        return f"it tells the target: {target.name!r} follows from it in every row"
    if twin := next((c.name for c in before if c is not target and _same(column, c)), ""):
        return f"it says the same as {twin!r}"
    return ""


def _tells(column: _Column, target: _Column) -> bool:
    """Whether the target follows from a column: by its values where these recur, else by an order or a line."""
    both = ~np.isnan(column.values) & ~np.isnan(target.values)
    x, y = column.values[both], target.values[both]
    classes = len(np.unique(y))
    if len(x) < _FEWEST_ROWS or classes < 2:
        return False
    if 2 * len(np.unique(x)) <= len(x):
        return len(np.unique(np.stack([x, y]), axis=1).T) == len(np.unique(x))
    if column.kind is ColumnKind.CATEGORY:
        return False
    if _is_class(target):
        ordered = y[np.argsort(x, kind="stable")]
        return int((np.diff(ordered) != 0).sum()) == classes - 1 and 2 * classes <= len(x)
    return _on_a_line(x, y)


def _on_a_line(x: Floats, y: Floats) -> bool:
    """Whether numbers follow from others by a factor and an addend, but for what rounding does."""
    spread = x.std() * y.std()
    return bool(spread > 0 and abs(((x - x.mean()) * (y - y.mean())).mean()) > 0.9999 * spread)


def _same(column: _Column, other: _Column) -> bool:
    """Whether rows have the same values, in whatever words or unit; so they lack them alike."""
    if not np.array_equal(np.isnan(column.values), np.isnan(other.values)) or column.different != other.different:
        return False
    if 2 * column.different > len(column.there):
        return ColumnKind.CATEGORY not in (column.kind, other.kind) and _on_a_line(column.there, other.there)
    return len(np.unique(np.stack([column.there, other.there]), axis=1).T) == column.different


def _is_class(target: _Column) -> bool:
    if target.kind is not ColumnKind.NUMBER:
        return True
    return target.different <= 2 or (target.different <= _MOST_CLASSES and _whole(target.there))


def _whole(values: Floats) -> bool:
    return bool((values == np.floor(values)).all())


def _section(target: _Column, features: Sequence[_Column]) -> dict[str, Any]:
    task = "regression" if not _is_class(target) else "binary" if target.different <= 2 else "classification"
    gaps = any(np.isnan(column.values).any() for column in features)
    found: dict[str, Any] = {"task": task, "target": target.name, "features": [column.name for column in features]}
    found |= {"missing": "indicator"} if gaps else {}
    columns = {column.name: _of_column(column) for column in features if column.kind is not ColumnKind.NUMBER}
    return found | ({"columns": columns} if columns else {})


def _of_column(column: _Column) -> Any:
    if column.kind is not ColumnKind.DATE:
        return str(column.kind)
    first = np.datetime64("1970-01-01") + np.timedelta64(int(column.there.min()), "D")
    return {"kind": "date", "since": f"{first.astype('datetime64[Y]')}-01-01"}
