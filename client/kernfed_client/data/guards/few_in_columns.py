"""Columns in which few rows of this client stand out are constant to a job, as the site's policy says.

Training rows tell sums over a column, so at least `policy.min_rows` of them stand out in it, or none. Test rows tell
errors of models. From those of a few models sums over a column follow, and a sum of one row is this row: so by default
a tenth of them stand out, at least three and no more than `min_rows`, or none. That changes metrics hardly. With
`min_rows` of any number of test rows, metrics of few would be of rows that are not so: of 30 rows and 180 yes-or-no
columns, 64 % right in place of 90 %. Training rows that stand far out in a column come first: where they move, columns
may no longer add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import PolicySection
from kernfed.wording import listed
from kernfed_client.data.guards.far_rows import without_few_far
from kernfed_client.data.guards.split import COMBINED_RULES, FIRST_RULES, JOINED_RULES
from kernfed_client.data.reading.partition_data import PartitionData, in_file

_FEWEST_TEST_ROWS, _TEST_ROWS_PER_ONE = 3, 10


@dataclass(frozen=True, slots=True)
class WithoutFew:
    """Rows of which no few stand out in a column."""

    train: PartitionData
    test: PartitionData
    columns: tuple[str, ...]
    """Those that changed, in the schema's order, the target last."""
    notes: tuple[str, ...]
    """For the site: they name rows."""


def fewest_apart(policy: PolicySection, rules: int, num_test_rows: int) -> tuple[int, int]:
    """Fewest training rows that may stand out in a column, or in a product of two, and fewest test rows; 1: any number.

    Args:
        policy: Of the client file.
        rules: By which of `kernfed_client.data.guards.split.RULES` the job began.
        num_test_rows: Of the job.
    """
    if policy.sparse_columns == "allow" or rules == FIRST_RULES:
        return 1, 1
    least = policy.min_rows
    if policy.sparse_columns == "constant-in-tests":
        return least, least
    if rules < JOINED_RULES:
        return least, 1
    share = num_test_rows // _TEST_ROWS_PER_ONE if rules >= COMBINED_RULES else 0
    return least, min(max(share, _FEWEST_TEST_ROWS), least)


def fewest_alike(policy: PolicySection, rules: int) -> int:
    """Fewest training rows that may have a combination of values of few columns; arguments as of `fewest_apart`."""
    return 1 if policy.few_values == "allow" or rules < COMBINED_RULES else policy.min_rows


def without_few_in_columns(
    train: PartitionData, test: PartitionData, schema: DataSchema, policy: PolicySection, rules: int
) -> WithoutFew:
    """Take rows that stand out in a column as the others, where they are too few."""
    fewest = fewest_apart(policy, rules, test.num_rows)
    made = train.of_no_few(schema, fewest[0]), test.of_no_few(schema, fewest[1])
    columns: set[str] = set()
    changed: list[PartitionData] = []
    notes = [note for pair in zip((train, test), made, fewest, strict=True) for note in _made_otherwise(schema, *pair)]
    train, test = made
    if rules >= JOINED_RULES:
        train, names, far = without_few_far(train, schema.features, fewest[0])
        columns.update(names)
        notes.extend(far)
    for rows, least, which in ((train, fewest[0], ""), (test, fewest[1], "test ")):
        found, names = rows.without_few(schema, least)
        if names:
            shown = listed([repr(name) for name in names], more=" and {left} more")
            moved = in_file(rows.row_numbers[(rows.x != found.x).any(axis=1)])
            few = "fewer rows than policy.min_rows" if least == policy.min_rows else f"fewer than {least} rows"
            notes.append(
                f"column {shown}{moved and f' ({which}{moved})'}: {few} differ from the others, or from what other "
                'columns say of them, so they are taken as the others; policy.sparse_columns = "allow" takes them as '
                "they are"
            )
        changed.append(found)
        columns.update(names)
    named = tuple(name for name in (*schema.features, schema.target) if name in columns)
    return WithoutFew(changed[0], changed[1], named, tuple(notes))


def _made_otherwise(schema: DataSchema, before: PartitionData, after: PartitionData, least: int) -> Iterator[str]:
    """A note on columns with types of which few rows have a level, a gap or a number beyond a limit."""
    ranked = [plan.name for plan in schema.columns if plan.rank]  # all of which are those of neighbours
    differs = (before.x != after.x) & ~np.isin(schema.features, ranked)
    if names := [repr(schema.features[j]) for j in np.flatnonzero(differs.any(axis=0))]:
        rows = in_file(before.row_numbers[differs.any(axis=1)])
        named = listed(names, more=" and {left} more")
        yield (
            f"column {named} ({rows}): fewer than {least} rows have the level, a gap, or a number beyond the limit, so "
            'they are taken as of no level, as the others, or as they are; policy.sparse_columns = "allow" takes them '
            "as the job says"
        )
