"""Rows that were read from a stream, by the blocks that jobs used so far: whole ones, parts of one, rows of none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kernfed_client.streams.used_rows import Blocks


@dataclass
class Block:
    """A block of which rows were read."""

    number: int
    lacks: Counter[int]
    """Marks of the rows that were not read yet."""
    num_lacking: int
    """How many these are."""
    places: list[int] = field(default_factory=list)
    """Those of its rows among the rows that were read."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """n rows that were read, by their places from 0."""

    whole: tuple[Block, ...]
    """Blocks that are whole, in the order in which they became so."""
    free: tuple[int, ...]
    """Rows that are of no block."""
    begun: tuple[Block, ...]
    """Blocks of which more rows may come; all other parts of blocks stay parts."""
    num_last_free: int
    """Rows of no block behind all others."""

    @property
    def num(self) -> int:
        """Rows of whole blocks, and of none."""
        return len(self.free) + sum(len(block.places) for block in self.whole)

    @property
    def num_lacking(self) -> int:
        """Rows after which a block may be whole; 0: none is begun."""
        return min((block.num_lacking for block in self.begun), default=0)


def arranged(marks: Sequence[int], blocks: Blocks, lost: Collection[int] = ()) -> Arranged:
    """Find the blocks of rows.

    Where the same row is in several blocks, it belongs to the one that is being read, or else to the next.

    Args:
        marks: Of the rows, in the order of the stream; n of them.
        blocks: At least all that have one of these marks.
        lost: Marks of rows between these that the job leaves out.
    """
    of_mark: dict[int, list[int]] = {}
    for number in sorted(blocks):
        for mark in blocks[number]:
            of_mark.setdefault(mark, []).append(number)
    parts: dict[int, Block] = {}
    whole: list[Block] = []
    free: list[int] = []
    last = 0
    for place, mark in enumerate(marks):
        numbers = of_mark.get(mark)
        if numbers is None:
            free.append(place)
            continue
        usable = [n for n in numbers if n in parts and parts[n].lacks[mark]] or [n for n in numbers if n not in parts]
        if not usable:  # all that have such a row, and are begun, have this one already
            continue
        last = next((n for n in usable if n >= last), usable[0])
        if last not in parts:
            parts[last] = Block(last, Counter(blocks[last]), sum(blocks[last].values()))
        block = parts[last]
        block.places.append(place)
        block.lacks[mark] -= 1
        block.num_lacking -= 1
        if not block.num_lacking:
            whole.append(parts.pop(last))
    begun = tuple(part for part in parts.values() if _may_come(part, len(marks), lost))
    num_last_free = next((i for i, mark in enumerate(reversed(marks)) if mark in of_mark), len(marks))
    return Arranged(tuple(whole), tuple(free), begun, num_last_free)


def _may_come(block: Block, num: int, lost: Collection[int]) -> bool:
    """Whether more of a block may come: the job leaves none of it out, and not as many other rows came since."""
    since = num - 1 - block.places[-1]
    return since < len(block.places) + block.num_lacking and not any(block.lacks[mark] for mark in lost)
