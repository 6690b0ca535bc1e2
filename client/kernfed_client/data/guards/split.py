"""Which rows a client holds out, and the blocks of rows that no job tells apart.

A job could learn about a single row by the difference of two others that use it and do not. So the rows themselves
decide, by a digest of their whole records, in which order they are held out, and a *block* of at least
`policy.min_rows` rows goes to one side, or to one batch or fold, as a whole: whatever a job draws, its sums stand for
whole blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernfed.arrays import Flags, Integers
from kernfed.errors import PolicyError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile
from kernfed.maths.folds import joined, keep_apart, number, row_digests
from kernfed.rng import Words, stream
from kernfed.tables.records import mixed
from kernfed_client.data.guards.records import Records, are_copies
from kernfed_client.data.reading.partition_data import PartitionData

FIRST_RULES, JOINED_RULES, COMBINED_RULES, SUMS_RULES, LIFE_RULES, POINT_RULES, ROUND_RULES = 1, 3, 4, 5, 6, 7, 8
RULES = ROUND_RULES
"""By which a job's rows are taken, told beside the digest of its rows so that a job goes on by those that it was begun
by. 1: rows that stand out in a column are taken as they are, and blocks are cut from one order of all rows. 2: such
columns are constant, and blocks are cut from an order of the job's own rows. 3: blocks are joined where in one of them
few rows would stand out. 4: also where few rows would have one of few combinations of values; of the test rows,
a tenth may stand out, and values are cut at a bound in whole multiples of rows. 5: also where few rows would stand out
in a sum of columns. 6: rows stay in the blocks of earlier jobs where these are whole. 7: so do points beside them.
8: rounds of streams too are judged by sums of columns."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows in the order in which they are held out, cut into blocks; n rows."""

    order: Integers
    """The rows, (n,)."""
    cuts: Integers
    """Where blocks begin in `order`, from 0, rising; the last one goes to the end."""
    may_hold_out: int
    """Rows from the first that may be held out: behind them each class has its last ones."""

    @property
    def of_rows(self) -> Integers:
        """Number of each row's block, (n,)."""
        found = np.empty(len(self.order), dtype=np.int64)
        found[self.order] = np.searchsorted(self.cuts, np.arange(len(self.order)), side="right") - 1
        return found

    def without(self, out: Flags) -> Blocks:
        """The blocks of the rows that are left when the first ones are held out; `out` is of `held_out`."""
        first = int(out.sum())
        left = np.cumsum(~out) - 1  # number of each row among those that are left
        cuts = self.cuts[self.cuts >= first] - first
        return Blocks(left[self.order[first:]], cuts, max(0, self.may_hold_out - first))

    def held_out(self, fraction: float) -> Flags:
        """Whether each row is held out, (n,): the first blocks, as many as come nearest to a fraction of the rows.

        What a smaller fraction holds out, a larger one holds out too.
        """
        ends = self.cuts[self.cuts <= self.may_hold_out]
        end = int(ends[np.argmin(np.abs(ends - int(fraction * len(self.order) + 0.5)))]) if len(ends) else 0
        found = np.zeros(len(self.order), dtype=np.bool_)
        found[self.order[:end]] = True
        return found


def refuse_draws(file: ClientFile, dataset: str, schema: DataSchema) -> None:
    """Refuse a job that decides by its seed, or by its columns, which rows are held out, where the policy allows none.

    Raises:
        PolicyError: Names the keys of both files that would allow it.
    """
    section = file.datasets.get(dataset)
    splits = schema.test_fraction > 0 and section is not None and section.test is None
    by_records = schema.by_content and schema.by_record
    if splits and not by_records and file.policy.min_rows > 1 and not file.policy.drawn_splits:
        raise PolicyError(
            "this client lets no job decide by its seed or its columns which rows are held out, for two such jobs "
            'tell about the rows in which they differ; set data.split = "by-record" or data.test_fraction = 0, or let '
            "this client's administrator give a test partition or set policy.drawn_splits"
        )


def refuse_few_groups(file: ClientFile, dataset: str, rows: PartitionData) -> None:
    """Refuse training rows of fewer groups than an answer may stand for.

    Raises:
        PolicyError: Names the remedies.
    """
    if rows.group is not None and rows.num_groups < file.policy.least_groups:
        raise PolicyError(
            f"data set {dataset}: its training rows are of fewer groups than policy.min_groups says, which is as many "
            "as policy.min_rows where it is unset; add groups, or let this client's administrator lower it"
        )


def ordered(rows: PartitionData, columns: Sequence[str]) -> PartitionData:
    """Rows with an order of their records; where no file told one, the rows' own columns are all that there is."""
    if rows.records is not None:
        return rows
    words = _words(_digests(rows, np.argsort(columns)))[:, 0].astype(np.uint64)
    return replace(rows, records=Records.of_words(words))


def held_out_by_record(rows: PartitionData, fraction: float, least: int, least_groups: int = 1) -> Flags:
    """Whether each row is held out, (n,): whatever a job's columns and target are, those which its file's order says.

    The first records of the file, in whole blocks, as near to the fraction as these allow. A unit of several rows, of a
    group or copies, stands where one of its rows does. Where these are different records, which other columns would
    hold out one by one, the order is another one: two jobs would else differ by them alone. The first fewer blocks are
    held out where else a class, or training at all, would be left without rows.

    Args:
        rows: n rows, ordered.
        fraction: Share of the file's records.
        least: Fewest records of a block, and fewest rows to train on.
        least_groups: Fewest groups of a block, where rows have groups.
    """
    assert rows.records is not None  # noqa: S101  # they are ordered
    records, unit = rows.records, belonging(rows)
    word, num = records.of_units(unit), int(records.ends[-1]) if len(records.ends) else 0
    tied = word != records.word
    if tied.any():
        records = records.anew(mixed(records.word[tied]) ^ word[tied])
        word = records.of_units(unit)
    cuts = _cuts(records.ends, num, least, least_groups if rows.group is not None else 1)
    nearest = int(np.argmin(np.abs(cuts - int(fraction * num + 0.5))))
    firsts = records.behind(cuts[1 : nearest + 1])
    behind = rows.num_rows - np.searchsorted(np.sort(word), firsts)
    usable = np.flatnonzero((behind >= least) & (firsts <= _least_of_greatest(word, rows.labels)))
    return word < firsts[usable[-1]] if usable.size else np.zeros(rows.num_rows, dtype=np.bool_)


def _least_of_greatest(word: Words, labels: Sequence[str] | None) -> np.uint64:
    """The greatest word of each class, and the least of these: up to it no class lies before a word as a whole."""
    if not labels:
        return np.uint64(2**64 - 1)
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    greatest = np.zeros(len(numbers), dtype=np.uint64)
    np.maximum.at(greatest, [numbers[label] for label in labels], word)
    least: np.uint64 = greatest.min()
    return least


def blocks_of(
    rows: PartitionData, columns: Sequence[str], least: int, least_groups: int = 1, *, anew: bool = True
) -> Blocks:
    """Order rows by their records, or else by their content, and cut them into blocks.

    Neither the order of rows in the file nor that of the columns counts. Rows of a group, and copies of a row, lie in
    one block. By content alone classes come evenly: of each, about the same share lies among the first rows.

    The order is one of these rows alone. Were the blocks of fewer rows cut from the same order, the last block of one
    job and that of another would differ by as few rows as their numbers leave over.

    Args:
        rows: n rows.
        columns: Names of the feature columns.
        least: Fewest rows of a block; all of the rows are one block where they are fewer than twice as many.
        least_groups: Fewest groups of a block, where rows have groups.
        anew: Unset: in the one order of all rows, by which they are held out.
    """
    num = rows.num_rows
    if rows.records is not None:
        together, records = belonging(rows), rows.records
        if anew:
            records = records.anew(mixed(records.word) ^ records.of_units(together))
        order = np.lexsort((together, records.of_units(together))).astype(np.int64)
        fewest = least_groups if rows.group is not None else 1
        return Blocks(order, _cuts(_ends(together[order]), num, least, fewest), num)
    digests = _digests(rows, np.argsort(columns))
    words = _words(digests).astype(np.uint64)
    if anew:
        words = mixed(words ^ np.add.reduce(mixed(words[:, 0])))
    unit = _unit(digests)
    unit = np.arange(num, dtype=np.int64) if unit is None else unit
    place = np.empty(num)
    for members in _by_class(rows.labels, np.lexsort((words[:, 1], words[:, 0]))).values():
        ends = _ends(unit[members])  # copies are neighbours, for they have one digest
        place[members] = np.repeat(ends, np.diff(ends, prepend=0)) / len(members)
    order = np.lexsort((words[:, 1], words[:, 0], place)).astype(np.int64)
    return Blocks(order, _cuts(_ends(unit[order]), num, least), int((place < 1.0).sum()))


def digest_words(rows: PartitionData, columns: Sequence[str]) -> Words:
    """64 bits of the digest of each row's content, (n,); neither the order of rows nor that of columns counts."""
    return _words(_digests(rows, np.argsort(columns)))[:, 0].astype(np.uint64)


def _words(digests: Sequence[bytes]) -> Words:
    return np.frombuffer(b"".join(digests), dtype=">u8").reshape(len(digests), 2)


def units_of(rows: PartitionData) -> Integers | None:
    """Number rows so that copies of a row, target included, have one number, (n,); None: rows are dealt one by one.

    Where rows have few different values, as in a table of a few classes, equal rows are no copies of one another.
    """
    return _unit(_digests(rows))


def belonging(rows: PartitionData) -> Integers:
    """Number rows from 0 on so that copies, and rows of a group, have one number, (n,)."""
    copies = units_of(rows)
    unit = np.arange(rows.num_rows, dtype=np.int64) if copies is None else copies
    return unit if rows.group is None else joined(unit, rows.group)


def _unit(digests: Sequence[bytes]) -> Integers | None:
    unit = number(digests)
    return unit if are_copies(int(unit.max(initial=-1)) + 1, len(unit)) else None


def _digests(rows: PartitionData, columns: Integers | slice = slice(None)) -> list[bytes]:
    """Of the content of each row, its columns in an order, its target included."""
    x = rows.x[:, columns]
    return row_digests(x if rows.y is None else np.column_stack([x, rows.y]), rows.labels)


def _by_class(labels: Sequence[str] | None, order: Integers) -> dict[str, Integers]:
    """Rows of each class in an order, by its name; without classes all rows."""
    if labels is None:
        return {"": order}
    groups: dict[str, list[int]] = {}
    for row in order:
        groups.setdefault(labels[row], []).append(int(row))
    return {name: np.array(group, dtype=np.int64) for name, group in groups.items()}


def _ends(unit: Integers) -> Integers:
    """Behind which places runs of one number end."""
    return np.flatnonzero(np.append(np.diff(unit) != 0, len(unit) > 0)) + 1


def _cuts(ends: Integers, num: int, least: int, least_units: int = 1) -> Integers:
    """Where blocks of at least so many rows and units begin, of rows whose units end behind `ends`."""
    cuts, units = [0], 0
    while True:
        place = max(int(np.searchsorted(ends, cuts[-1] + least)), units + least_units - 1)
        if place >= len(ends) or ends[place] > num - least or len(ends) - place - 1 < least_units:
            return np.array(cuts, dtype=np.int64)
        cuts.append(int(ends[place]))
        units = place + 1


def drawn_rows(
    labels: Sequence[str] | None,
    num_rows: int,
    fraction: float,
    seed: int,
    client: str,
    unit: Integers | None = None,
) -> Flags:
    """Draw the rows that are held out for testing.

    The order of rows in the file and (seed, client) determine the choice. With labels each class gives its share,
    rounded so that the total is right (largest remainders first), and never its only or last row. Rows of one unit go
    to one side, so a class may give a few rows less.

    Args:
        labels: Class of each row, or None: rows are alike.
        num_rows: n.
        fraction: Share of the rows to hold out, below 1.
        seed: The job's seed.
        client: The client's name.
        unit: Rows of one number belong together, (n,), as copies of a row; unset: each is alone.

    Returns:
        Whether each row is held out, (n,).
    """
    order = stream(seed, "split", client).permutation(num_rows)
    groups = _by_class(labels, order)
    names = sorted(groups)
    shares = [fraction * len(groups[name]) for name in names]
    takes = [min(int(share), len(groups[name]) - 1) for share, name in zip(shares, names, strict=True)]
    left = int(fraction * num_rows + 0.5) - sum(takes)
    for i in sorted(range(len(names)), key=lambda i: (int(shares[i]) - shares[i], names[i])):
        if left > 0 and int(shares[i]) < shares[i] and takes[i] < len(groups[names[i]]) - 1:
            takes[i] += 1
            left -= 1
    held_out = np.zeros(num_rows, dtype=np.bool_)
    for name, take in zip(names, takes, strict=True):
        rows = groups[name]
        apart = keep_apart(np.arange(len(rows)), rows if unit is None else unit[rows], take)
        held_out[rows[apart]] = True
    if unit is not None and any(takes) and not held_out.any():
        held_out |= _smallest(order, unit, groups)
    return held_out


def _smallest(order: Integers, unit: Integers, groups: Mapping[str, Integers]) -> Flags:
    """The first of the smallest units of which no class is all, where each unit is larger than what is held out."""
    sizes = np.bincount(unit)
    in_class = np.empty(len(unit), dtype=np.int64)
    for rows in groups.values():
        in_class[rows] = len(rows)
    smaller = sizes[unit] < in_class
    left = [int(unit[row]) for row in order if smaller[row]]
    if not left:
        return np.zeros(len(unit), dtype=np.bool_)
    return np.asarray(unit == min(left, key=lambda u: sizes[u]), dtype=np.bool_)
