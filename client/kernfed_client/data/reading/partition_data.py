"""Rows of a partition, checked against the job's schema; faults name file, column and row, never what a cell holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernfed.arrays import Flags, Floats, Integers
from kernfed.columns.expand import expand
from kernfed.columns.plan import ColumnPlan, fault
from kernfed.errors import DataError, WireError
from kernfed.federation.messages.data import DataSchema, LearningTask, MissingRule
from kernfed.jobs.client_file import DatasetSection, PartitionFile
from kernfed.maths.few.rows import levelled, without_few
from kernfed.maths.tasks import TASKS
from kernfed.rng import Words
from kernfed.tables.cells import class_name
from kernfed.tables.raw_table import Faults, RawTable, Source
from kernfed.tables.typed_cells import cell_readers
from kernfed.wording import MAX_CLASS_NAME, is_class_name, listed
from kernfed_client.data.guards.records import Records, told_apart
from kernfed_client.data.reading.ranges import added, counts, outside_ranges, refuse_all_outside

MAX_CLASSES = 1000
"""Most classes that a client reports of its own accord; a target with more is not one of classes."""


@dataclass(frozen=True, slots=True)
class Groups:
    """How a site says which rows belong together."""

    column: str | None = None
    """Of the file; None: rows have no groups."""
    may_be_used: bool = False
    """Whether a job may take it as a feature or target."""


NO_GROUPS = Groups()


def groups_of(section: DatasetSection) -> Groups:
    """As a data set of the client file says."""
    return Groups(section.group, section.group_column == "usable")


@dataclass(frozen=True, slots=True)
class PartitionData:
    """Checked rows of a partition: n rows, P feature columns in the job's order."""

    x: Floats
    """Features, (n, P), finite; row-major, however they came: the order in memory decides the last bits of products."""
    labels: list[str] | None
    """Class of each row, by the job's names; None for regression."""
    y: Floats | None
    """Target of each row, (n,), finite; None where it is a class."""
    num_dropped_rows: int
    """Rows left out for missing values."""
    row_numbers: Integers
    """Position of each row in the file, (n,), from 1: the (first) line for CSV."""
    num_outside_rows: int = 0
    """Rows left out for a value outside of its range."""
    outside_rows: tuple[int, ...] = ()
    """The same per range of the schema; empty: none."""
    records: Records | None = None
    """Where the rows stand among all records of the file; None: their own columns decide."""
    word: Words | None = None
    """What tells each row from all others of any file, (n,), whatever the job's columns are; None: its columns do."""
    gaps: tuple[int, ...] = ()
    """Rows of the file without a value, per feature and of the target last; empty: nothing is known of any."""
    cells: Floats | None = None
    """Numbers of the cells of typed columns, of which `x` was made, (n, R); None: these are the columns of x."""

    def __post_init__(self) -> None:
        """Bring the rows into order in memory."""
        object.__setattr__(self, "x", np.ascontiguousarray(self.x))

    @property
    def num_rows(self) -> int:
        """Rows kept, n."""
        return len(self.x)

    def take(self, rows: Integers) -> PartitionData:
        """Rows by index, in the order given; what was dropped is counted at the whole."""
        return PartitionData(
            self.x[rows],
            None if self.labels is None else [self.labels[i] for i in rows],
            None if self.y is None else self.y[rows],
            0,
            self.row_numbers[rows],
            records=None if self.records is None else self.records.take(rows),
            word=None if self.word is None else self.word[rows],
            gaps=self.gaps,
            cells=None if self.cells is None else self.cells[rows],
        )

    def of_no_few(self, schema: DataSchema, least: int) -> PartitionData:
        """Rows of which what the job makes of the columns tells of no fewer than `least`; see `expand`."""
        if self.cells is None or least == 1:
            return self
        return replace(self, x=expand(schema.columns, self.cells, least))

    def by_itself(self) -> PartitionData:
        """The same rows, as if their file had no others."""
        return replace(self, gaps=(), records=None if self.records is None else self.records.by_themselves())

    @property
    def group(self) -> Integers | None:
        """Number of each row's group, (n,); None: rows have none."""
        return None if self.records is None else self.records.group

    @property
    def num_groups(self) -> int:
        """Different groups; without groups each row is one."""
        return self.num_rows if self.group is None else len(np.unique(self.group))

    def without_few(self, schema: DataSchema, least: int) -> tuple[PartitionData, tuple[str, ...]]:
        """Rows of which no fewer than `least` stand out in a column; and the names of the columns that changed.

        Fewer rows than `least` stay as they are: no answer stands for them.
        """
        if self.num_rows < least:
            return self, ()
        x, changed = without_few(self.x, least)
        y = None if self.y is None else levelled(self.y.reshape(-1, 1).copy(), least)[:, 0]
        names = tuple(schema.features[j] for j in changed)
        if y is not None and (y != self.y).any():
            names = (*names, schema.target)
        return (replace(self, x=x, y=y), names) if names else (self, ())

    def within_ranges(self, schema: DataSchema, where: str, least: int = 1) -> PartitionData:
        """Rows within the schema's ranges; the others are counted beside those that were counted before.

        Raises:
            DataError: All rows lie outside; its text begins with `where`.
        """
        found = outside_ranges(schema, self.x, self.y, least)
        out = found.any(axis=1)
        if not out.any():
            return self
        refuse_all_outside(schema, found, where)
        kept = self.take(np.flatnonzero(~out))
        return replace(
            kept,
            num_dropped_rows=self.num_dropped_rows,
            num_outside_rows=self.num_outside_rows + int(out.sum()),
            outside_rows=added([self.outside_rows, counts(schema, found)]),
        )


def in_file(row_numbers: Integers) -> str:
    """Where rows are, for people at the site; empty for no rows."""
    shown = listed([str(number) for number in row_numbers], 5, more=", ...")
    return f"{'row' if len(row_numbers) == 1 else 'rows'} {shown} of the file" if len(row_numbers) else ""


def partition_source(
    file: PartitionFile, schema: DataSchema, dataset: str, partition: str, groups: Groups = NO_GROUPS
) -> Source:
    """A partition's file, its columns by the job, and its settings as the site's administrator finds them.

    The folder is left out of messages, for it tells about the site.

    Raises:
        DataError: The job asks for the column that names groups, which the site keeps to itself.
        WireError: No job file makes such columns.
    """

    def setting(name: str) -> str:
        where = dataset if name in DatasetSection.model_fields else f"{dataset}.{partition}"
        return f"`{name}` of [datasets.{where}] in the client file"

    if wrong := fault(schema.columns, schema.features if schema.columns else None):
        raise WireError(f"the job's columns are none that a job file has: {wrong}")
    has_classes, columns = TASKS[schema.task].has_classes, schema.table_columns
    numbers = columns if has_classes else (*columns, schema.target)
    source = Source(
        file,
        f"data set {dataset}, {partition} ({file.path.name})",
        columns,
        schema.target,
        has_classes,
        setting,
        groups.column,
        with_records=True,
        readers=cell_readers(schema.columns, file, numbers, setting),
    )
    _check_units(source, schema.columns)
    for column in () if groups.may_be_used or groups.column is None else source.columns:
        if groups.column == source.in_file(column):
            source.refuse(
                f"{source.shown(column)} names groups, and is no feature or target; remove it from the job, or set "
                f'{setting("group_column")} to "usable"',
                public=f"column {column!r} may be no feature or target here",
            )
    return source


def _check_units(source: Source, plans: Sequence[ColumnPlan]) -> None:
    for plan in plans:
        how = source.file.cells.get(plan.name)
        if how is not None and not how.knows_unit(plan.unit):
            remedy = f"add {plan.unit!r} to `convert` of the column in {source.key('cells')}, or correct the job"
            source.refuse(
                f"{source.shown(plan.name)} is in {how.unit!r}, and the job wants {plan.unit!r}; {remedy}",
                public=f"column {plan.name!r} is not in {plan.unit!r}, and cannot be converted",
            )


def check_table(source: Source, schema: DataSchema, table: RawTable, least: int = 1) -> PartitionData:
    """Check a table as read against the schema; leave out rows outside of ranges, and those with gaps where it says so.

    Raises:
        DataError: Names file, column, row and remedy; holds no content of cells.
    """
    plans = schema.columns
    if plans:
        table = replace(table, may_lack=np.array([plan.fills for plan in plans], dtype=np.bool_))
    records = Records.of_table(table) if schema.by_record or table.group is not None else None
    word = None if table.records is None else told_apart(table.records)
    table, found, within = _within_ranges(source, schema, table, least)
    rows, absent = table.row_numbers, table.absent
    faults = Faults(source, table.row_word)
    faults.add_infinite(table)
    refusing = [plan.name for plan in plans if plan.missing is MissingRule.REFUSE]
    refusing += [schema.target] if schema.missing is MissingRule.REFUSE else []
    if plans or refusing:
        faults.add_gaps(
            table, 'complete the data, or set data.missing to "drop-rows" in the job', refusing if plans else None
        )
    names = tuple(class_name(name, source.file.labels, schema.classes) for name in table.names)
    if table.codes is not None:
        _check_labels(source, schema, names, table.codes, ~absent, rows, faults)
    faults.raise_if_any()
    kept = ~absent
    if len(rows) and not kept.any():
        source.refuse(
            f"all {len(rows):,} rows lack a value in a column that the job uses, so dropping them leaves none; "
            "complete the data or use fewer columns"
        )
    labels = None if table.codes is None else [names[code] for code in table.codes[kept]]
    y = None if table.y is None else table.y[kept]
    cells = table.x if kept.all() else table.x[kept]
    x = expand(plans, cells)
    places = np.flatnonzero(within)[kept]
    records, word = None if records is None else records.take(places), None if word is None else word[places]
    num_outside = int(found.any(axis=1).sum())
    lacking = np.isnan(table.x).sum(axis=0).tolist()
    lacking = [num for num, plan in zip(lacking, plans, strict=True) for _ in plan.names] if plans else lacking
    gaps = (*lacking, int(table.absent_targets.sum()))
    of_file = records, word, gaps, cells if plans else None
    return PartitionData(x, labels, y, int(absent.sum()), rows[kept], num_outside, counts(schema, found), *of_file)


def _within_ranges(source: Source, schema: DataSchema, table: RawTable, least: int) -> tuple[RawTable, Flags, Flags]:
    """The rows of a table within the schema's ranges, whatever else is in the others; which lie outside of which, and
    which within.

    Raises:
        DataError: All rows lie outside.
    """
    found = outside_ranges(schema, table.x, table.y, least, ~table.absent, source.features)
    out = found.any(axis=1)
    kept: Flags = np.logical_not(out)
    if kept.all():
        return table, found, kept
    refuse_all_outside(schema, found, source.where)
    within = replace(
        table,
        x=table.x[kept],
        y=None if table.y is None else table.y[kept],
        codes=None if table.codes is None else table.codes[kept],
        row_numbers=table.row_numbers[kept],
    )
    return within, found, kept


def _check_labels(
    source: Source,
    schema: DataSchema,
    names: Sequence[str],
    codes: Integers,
    kept: Flags,
    rows: Integers,
    faults: Faults,
) -> None:
    unusable = [not is_class_name(name) for name in names]
    unknown = [bool(schema.classes) and name not in schema.classes for name in names]
    for bad, problem in (
        (unusable, f"a class name of more than {MAX_CLASS_NAME} characters, or with control characters; correct it"),
        (
            unknown,
            f"a class that the job does not know (it knows {', '.join(schema.classes[:12])}); "
            f"correct it, or say which class it is in {source.key('labels')}",
        ),
    ):
        flags = np.array([*bad, False], dtype=np.bool_)  # code -1, no value, finds the last
        faults.add_rows(schema.target, rows[flags[codes] & kept], problem)


def check_class_column(schema: DataSchema, num_classes: int, num_rows: int, where: str) -> None:
    """Refuse a target column that is not one of classes.

    Raises:
        DataError: It has too many values.
    """
    # Without classes in the job every label of the column is told to the coordinator: never let that be row content.
    binary = 'use task = "classification", or map labels in the client file'
    numbers = 'does not look like a class; use task = "regression", another target, or name data.classes in the job'
    if schema.task is LearningTask.BINARY and num_classes > 2:
        raise DataError(
            f"{where}: column {schema.target!r} has {num_classes} classes but the task is binary; {binary}",
            public=f"{where}: column {schema.target!r} has more than two classes but the task is binary; {binary}",
        )
    if num_classes > MAX_CLASSES or (num_classes > 20 and 2 * num_classes > num_rows):
        raise DataError(
            f"{where}: column {schema.target!r} has {num_classes} different values in {num_rows} rows, so it {numbers}",
            public=f"{where}: column {schema.target!r} has so many different values that it {numbers}",
        )
