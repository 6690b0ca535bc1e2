"""Which of a client's rows train and which test, where few rows may not stand apart.

Rows that the job holds out are whole blocks, so that two jobs do not differ by a few rows; a class of fewer training
rows than the policy lets a number stand for is left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Flags, Integers
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import PolicySection
from kernfed_client.data.guards.split import (
    FIRST_RULES,
    Blocks,
    belonging,
    blocks_of,
    drawn_rows,
    held_out_by_record,
    units_of,
)
from kernfed_client.data.reading.partition_data import PartitionData


@dataclass(frozen=True, slots=True)
class Least:
    """What a number must stand for, at least."""

    rows: int
    groups: int
    """1 where rows have no groups."""

    def holds(self, rows: PartitionData) -> bool:
        """Whether rows are enough."""
        return rows.num_rows >= self.rows and rows.num_groups >= self.groups


def train_and_test(
    train: PartitionData,
    test: PartitionData | None,
    schema: DataSchema,
    client: str,
    policy: PolicySection,
    rules: int,
) -> tuple[PartitionData, PartitionData, bool, Integers | None, set[str]]:
    """Hold out test rows where there are none, and leave rare classes out.

    Args:
        train: Rows to train on, or to split.
        test: Rows of the client's own test partition.
        schema: What the job expects.
        client: This client's name.
        policy: Of the site.
        rules: Those by which the job was begun.

    Returns:
        Training rows, test rows, whether there are too few of these, blocks of training rows, and classes left out.
    """
    least, rare = Least(policy.min_rows, 1 if train.group is None else policy.least_groups), set[str]()
    everything, own_test = train, test
    while True:
        train, test, few, block = _split(everything, own_test, schema, client, least, rules)
        found = _rare_classes(train, least)
        if not found or policy.rare_classes == "allow" or not least.holds(train):
            return train, test, few, block, rare
        rare |= found
        everything = _of_other_classes(everything, rare)
        own_test = None if own_test is None else _of_other_classes(own_test, rare)


def _split(
    rows: PartitionData, test: PartitionData | None, schema: DataSchema, client: str, least: Least, rules: int
) -> tuple[PartitionData, PartitionData, bool, Integers | None]:
    validates = schema.validation_fraction > 0
    if validates:
        rows, test = _validation(rows, test, schema, least)
    by_content = schema.by_content and rows.records is None
    blocks = blocks_of(rows, schema.features, least.rows, anew=False) if by_content else None
    if test is None:
        held_out, few = _held_out(rows, schema, client, least, blocks)
        train, test = rows.take(np.flatnonzero(~held_out)), rows.take(np.flatnonzero(held_out))
        blocks = None if blocks is None else blocks.without(held_out)
    else:
        train, few = rows, (test.num_rows > 0 or validates) and not least.holds(test)
        test = test.take(np.zeros(0, dtype=np.intp)) if few else test
    if least == Least(1, 1):
        return train, test, few, None
    if blocks is None or rules > FIRST_RULES:
        blocks = blocks_of(train, schema.features, least.rows, least.groups, anew=rules > FIRST_RULES)
    return train, test, few, blocks.of_rows


def _validation(
    rows: PartitionData, test: PartitionData | None, schema: DataSchema, least: Least
) -> tuple[PartitionData, PartitionData]:
    """Rows to train on, and those that stand for the test rows, which are left out of both.

    Without a test partition these are what `test_fraction` holds out of the same rows. A larger fraction holds out
    those of a smaller one too, so what lies between is whole blocks. Where it is too few rows, they are trained on.
    """
    fraction = 0.0 if test is not None else schema.test_fraction
    out = held_out_by_record(rows, fraction, least.rows, least.groups)
    both = held_out_by_record(rows, fraction + schema.validation_fraction, least.rows, least.groups)
    validation = rows.take(np.flatnonzero(both & ~out))
    return rows.take(np.flatnonzero(~both if least.holds(validation) else ~out)), validation


def _rare_classes(rows: PartitionData, least: Least) -> set[str]:
    labels = rows.labels or []
    counts = Counter(labels)
    if rows.group is None or rows.labels is None:
        return {name for name, count in counts.items() if count < least.rows}
    groups = Counter(label for label, _ in set(zip(labels, rows.group.tolist(), strict=True)))
    return {name for name, count in counts.items() if count < least.rows or groups[name] < least.groups}


def _of_other_classes(rows: PartitionData, names: set[str]) -> PartitionData:
    return rows.take(np.array([i for i, label in enumerate(rows.labels or ()) if label not in names], dtype=np.int64))


def _held_out(
    rows: PartitionData, schema: DataSchema, client: str, least: Least, blocks: Blocks | None
) -> tuple[Flags, bool]:
    """Whether each row is held out, (n,); and whether none is because they would be too few."""
    if schema.by_content:
        if blocks is None:
            found = held_out_by_record(rows, schema.test_fraction, least.rows, least.groups)
        else:
            found = blocks.held_out(schema.test_fraction)
        asked = int(schema.test_fraction * rows.num_rows + 0.5) > 0
        none_is_few = least != Least(1, 1) or rows.group is not None
        few = asked and (not least.holds(rows.take(np.flatnonzero(found))) if found.any() else none_is_few)
        return found & (not few), few
    unit = belonging(rows) if rows.group is not None else units_of(rows) if schema.copies_together else None
    found = drawn_rows(rows.labels, rows.num_rows, schema.test_fraction, schema.seed, client, unit)
    few = bool(found.any()) and not least.holds(rows.take(np.flatnonzero(found)))
    return found & (not few), few
