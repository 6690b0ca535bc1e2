"""The client's data: read a partition, check it against the job's schema, hold out test rows.

A partition is either what the job asked for or a DataError that names file, column, row and remedy, never the content
of a cell: the message reaches the operator. Nothing is repaired in silence; rows are left out only under `drop-rows`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from kernfed.arrays import Integers
from kernfed.errors import DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile, PartitionFile, PolicySection
from kernfed.maths.tasks import TASKS
from kernfed.tables.read import read
from kernfed.wording import listed
from kernfed_client.data.guards.dealt_blocks import Dealing
from kernfed_client.data.guards.few_in_columns import without_few_in_columns
from kernfed_client.data.guards.joined_blocks import FewStandOut, joined_blocks
from kernfed_client.data.guards.split import (
    JOINED_RULES,
    RULES,
    ordered,
)
from kernfed_client.data.reading.partition_data import (
    NO_GROUPS,
    Groups,
    PartitionData,
    check_class_column,
    check_table,
    groups_of,
    in_file,
    partition_source,
)
from kernfed_client.data.reading.ranges import added
from kernfed_client.data.reading.train_and_test import train_and_test

_NO_TEST_ROWS = "the test partition has no rows, so nothing is measured at this client"
_FEW_TEST_ROWS = (
    "fewer test rows than policy.min_rows, or groups than policy.min_groups, or rows that belong together, so nothing "
    "is measured at this client, and the job holds none out; a larger data.test_fraction in the job, a test partition "
    "of more rows, or a lower policy.min_rows gives metrics"
)


@dataclass(frozen=True, slots=True)
class LocalData:
    """Rows on which a client trains and tests in one job."""

    train: PartitionData
    test: PartitionData
    num_dropped_rows: int
    """Rows of all partitions left out for missing values."""
    classes: tuple[str, ...]
    """Classes that occur, in the schema's order, or sorted where it names none; empty for regression."""
    notes: tuple[str, ...] = ()
    """Points that are allowed but worth a look."""
    backbone: str = ""
    """Fingerprint of the backbone that made the features; empty without one."""
    num_outside_rows: int = 0
    """Rows of all partitions left out for a value outside of its range."""
    outside_rows: tuple[int, ...] = ()
    """The same per range of the schema; empty: none."""
    few_test_rows: bool = False
    """Whether there are no test rows because they were fewer than the policy lets a metric stand for."""
    block: Integers | None = None
    """Number of each training row's block, (n,), none of which a draw divides; None: rows are drawn one by one."""
    rare_classes_left_out: bool = False
    """Whether rows were left out since there are few of their class."""
    sparse_columns: tuple[str, ...] = ()
    """Columns in which fewer rows stood out than the policy lets a number stand for, and none does now."""
    rules: int = RULES
    """By which of `kernfed_client.data.guards.split.RULES` the rows were taken."""
    small_block: Integers | None = None
    """Blocks before they were joined, (n,): for draws of which nothing is told but a choice."""
    joined_columns: tuple[str, ...] = ()
    """Columns, or the target, for which blocks were joined: else few rows of one would stand out in them."""

    dealt_larger: bool = False
    """Whether blocks are fewer, since earlier jobs took these rows in other sets."""
    dealt_anew: bool = False
    """Whether other rows are held out than in an earlier job, though most of its rows are the same."""

    @property
    def block_rows(self) -> int:
        """Rows of the largest block, where blocks were joined; else 0."""
        larger = self.joined_columns or self.dealt_larger
        return int(np.bincount(self.block).max()) if self.block is not None and larger else 0


def load_local_data(
    file: ClientFile,
    dataset: str,
    schema: DataSchema,
    client: str,
    *,
    rules: int = RULES,
    dealing: Dealing | None = None,
) -> LocalData:
    """Read a data set of the client file and hold out test rows where it has no test partition.

    Args:
        file: The client file.
        dataset: Name of the data set in it.
        schema: What the job expects.
        client: This client's name; where the job draws its held-out rows, they come from the schema's seed and this
            name.
        rules: Those by which the job was begun.
        dealing: Blocks of earlier jobs; unset: there were none.

    Raises:
        DataError: The data set is not offered, cannot be read or does not fit; one line per fault.
    """
    section = file.datasets.get(dataset)
    if section is None:
        offered = ", ".join(sorted(file.datasets)) or "none"
        raise DataError(
            f"data set {dataset!r} is not offered here (offered: {offered}); "
            f"add [datasets.{dataset}.train] to the client file, or correct cohort.dataset in the job"
        )
    if schema.backbone:
        from kernfed_client.data.reading.backbone_data import BackboneReader  # noqa: PLC0415  # loads torch, for backbones alone

        reader = BackboneReader(file, schema, dataset)
        train = reader.read(section.train, "train")
        test = None if section.test is None else reader.read(section.test, "test")
        data = prepare(train, test, schema, client, f"data set {dataset}", file.policy, rules=rules, dealing=dealing)
        return replace(data, backbone=reader.fingerprint)
    least, groups = file.policy.min_rows, groups_of(section)
    train = read_partition(section.train, schema, dataset, "train", least, groups)
    test = None if section.test is None else read_partition(section.test, schema, dataset, "test", least, groups)
    return prepare(train, test, schema, client, f"data set {dataset}", file.policy, rules=rules, dealing=dealing)


def prepare(
    train: PartitionData,
    test: PartitionData | None,
    schema: DataSchema,
    client: str,
    where: str = "data",
    policy: PolicySection | None = None,
    *,
    rules: int = RULES,
    dealing: Dealing | None = None,
) -> LocalData:
    """Hold out test rows where there are none, and check classes over both partitions.

    Args:
        train: Rows to train on, or to split.
        test: Rows of the client's own test partition.
        schema: What the job expects.
        client: This client's name.
        where: How messages begin.
        policy: Its `min_rows` is the fewest that a number may stand for, test rows too: a smaller test partition is
            left out. Rows that the job holds out are whole blocks of so many, so that two jobs do not differ by a few
            rows. Rows of a class with fewer training rows are left out, unless `rare_classes` allows them. Of the
            training rows no fewer stand out in a column, unless `sparse_columns` allows it; of the test rows neither
            where it says so. Unset: 1.
        rules, dealing: As of `load_local_data`.

    Raises:
        DataError: The target is no class column, a binary task has three classes, all rows lie outside of ranges, or
            the job draws its validation rows.
    """
    policy = policy or PolicySection(min_rows=1)
    least = policy.min_rows
    train = train.within_ranges(schema, f"{where}, train", least)
    test = None if test is None else test.within_ranges(schema, f"{where}, test", least)
    parts, own_test = [part for part in (train, test) if part is not None], test is not None
    num_outside = sum(part.num_outside_rows for part in parts)
    outside = added([part.outside_rows for part in parts])
    empty = test is not None and not test.num_rows
    dropped = train.num_dropped_rows + (test.num_dropped_rows if test else 0)
    if TASKS[schema.task].has_classes and not schema.classes:
        different = {label for part in parts for label in part.labels or ()}
        check_class_column(schema, len(different), sum(part.num_rows for part in parts), where)
    if test is not None and train.group is not None and test.group is not None:
        _refuse_shared_groups(train.group, test.group, where)
    if schema.validation_fraction and not schema.by_record:
        raise DataError(f'{where}: validation rows are taken by whole records alone; set data.split = "by-record"')
    if schema.by_record:
        train, test = ordered(train, schema.features), None if test is None else ordered(test, schema.features)
    everything = train
    train, test, few, block, rare = train_and_test(train, test, schema, client, policy, rules)
    if rare and not train.num_rows:
        raise DataError(
            f"{where}: no class of column {schema.target!r} has as many training rows as policy.min_rows says, so the "
            'column does not look like classes; use task = "regression", or another target'
        )
    if dealing is not None and block is not None:
        block = dealing.of_parts(train, test, schema.features, block, policy.least_groups)
    notes = [_NO_TEST_ROWS] if empty else [_FEW_TEST_ROWS] if few else []
    notes += [] if own_test else _large_group_notes(train, test, schema.test_fraction)
    few_apart = without_few_in_columns(train, test, schema, policy, rules)
    train, test = few_apart.train, few_apart.test
    notes += few_apart.notes
    small, joined_for = block, tuple[str, ...]()
    if block is not None and rules >= JOINED_RULES:
        block, joined_for = _joined(train, block, schema, policy, rules)
    if rare:
        where_rare = in_file(everything.row_numbers[np.isin(everything.labels or [], sorted(rare))])
        notes.append(
            f"class {listed([repr(name) for name in sorted(rare)])} ({where_rare}): "
            "fewer training rows than policy.min_rows, so its rows are left out; "
            'policy.rare_classes = "allow" takes them'
        )
    classes: tuple[str, ...] = ()
    if TASKS[schema.task].has_classes:
        counts = Counter(train.labels or ())
        present = set(counts) | set(test.labels or ())
        classes = tuple(c for c in schema.classes if c in present) or tuple(sorted(present))
        if len(counts) == 1:
            notes.append(f"all {train.num_rows} training rows are of one class, {next(iter(counts))!r}")
        notes.extend(
            f"class {c!r} has test rows but no training row" for c in classes if c not in counts and len(counts) > 1
        )
    return LocalData(
        train=train,
        test=test,
        num_dropped_rows=dropped,
        classes=classes,
        notes=tuple(notes),
        num_outside_rows=num_outside,
        outside_rows=outside,
        few_test_rows=few,
        block=block,
        rare_classes_left_out=bool(rare),
        sparse_columns=few_apart.columns,
        rules=rules,
        small_block=small,
        joined_columns=joined_for,
        dealt_larger=dealing is not None and dealing.larger,
    )


def _joined(
    rows: PartitionData, block: Integers, schema: DataSchema, policy: PolicySection, rules: int
) -> tuple[Integers, tuple[str, ...]]:
    """Blocks of which none has a few rows that stand out, (n,), and the columns for which some were joined."""
    judge = FewStandOut(rows, policy, rules)
    found = joined_blocks(block, judge.allows)
    return found, tuple(name for name, few in zip((*schema.features, schema.target), judge.blamed, strict=True) if few)


def _large_group_notes(train: PartitionData, test: PartitionData, fraction: float) -> list[str]:
    """A note where a group has more rows than are to be held out."""
    if train.group is None or test.group is None:
        return []
    _, sizes = np.unique(np.concatenate([train.group, test.group]), return_counts=True)
    if not 0 < fraction * sizes.sum() < sizes.max(initial=0):
        return []
    return [
        f"{sizes.max():,} of {sizes.sum():,} rows are of one group, more than data.test_fraction holds out, so more or "
        "fewer rows are held out than it says"
    ]


def _refuse_shared_groups(train: Integers, test: Integers, where: str) -> None:
    if shared := len(np.intersect1d(train, test)):
        found = "a group has" if shared == 1 else f"{shared} groups have"
        raise DataError(
            f"{where}: {found} rows in the training and in the test partition; move each group's rows to one of them, "
            "or leave the test partition out",
            public=f"{where}: its training and test partitions share groups",
        )


def read_partition(
    file: PartitionFile,
    schema: DataSchema,
    dataset: str,
    partition: str,
    least: int = 1,
    groups: Groups = NO_GROUPS,
) -> PartitionData:
    """Read a file and check it against the schema.

    Args:
        file: Where it lies and how to read it.
        schema: What the job expects.
        dataset: Name of the data set, for messages.
        partition: Name of the partition; a `test` partition may have a header and no rows: there are no test rows.
        least: Fewest rows that a range leaves out, where it leaves out any.
        groups: Of the data set.

    Raises:
        DataError: Names file, column, row and remedy; holds no content of cells.
    """
    wanted = [*schema.table_columns, schema.target]
    if twice := sorted(name for name, count in Counter(wanted).items() if count > 1):
        raise DataError(f"the job uses column {', '.join(twice)} twice; correct its features and target")
    source = partition_source(file, schema, dataset, partition, groups)
    return check_table(source, schema, read(source, may_be_empty=partition == "test"), least)


def read_unlabelled(
    file: PartitionFile, schema: DataSchema, dataset: str, least: int = 1, groups: Groups = NO_GROUPS
) -> PartitionData:
    """Read the feature columns of a partition that need not have the target; arguments as of `read_partition`.

    Raises:
        DataError: Names file, column, row and remedy.
    """
    source = partition_source(file, schema, dataset, "unlabelled", groups)
    source = replace(source, target=None, has_labels=False)
    return check_table(source, schema, read(source), least).of_no_few(schema, least)
