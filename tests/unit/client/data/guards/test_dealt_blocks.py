"""Blocks over all jobs of a client: whole ones stay, others are fewer and fewer, and none tell about a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from kernfed.arrays import Array, Integers
from kernfed.errors import PolicyError
from kernfed.rng import Words, stream
from kernfed_client.data.guards import adding_up
from kernfed_client.data.guards.dealt_blocks import FOLDER, Dealing
from kernfed_client.data.guards.kept_sets import kept_sets

LEAST, NUM = 5, 60
WORDS: Words = stream(0, "words").integers(1 << 62, size=2 * NUM).astype(np.uint64)


def deal(state: Path, rows: Integers, unit: Integers | None = None, *, begun: bool = False) -> Integers:
    """Deal rows in their order, five to a block, as a job does that runs."""
    dealing = Dealing(state, LEAST, begun=begun)
    whole = np.arange(len(rows)) if unit is None else unit
    found = dealing.deal(WORDS[rows], whole, lambda places: np.arange(len(places)) * (len(places) // 5) // len(places))
    dealing.keep()
    return found


def test_whole_blocks_stay_and_the_others_are_dealt_anew(tmp_path: Path) -> None:
    """Five blocks lack a row: what is left of them is one, as smaller ones, less a former one, would be of few rows."""
    first = deal(tmp_path, np.arange(NUM))
    left = np.setdiff1d(np.arange(NUM), [0, 5, 10, 15, 20, *range(55, 60)])
    second = deal(tmp_path, left)
    for number in range(5, 11):
        [own] = np.unique(second[np.isin(left, np.flatnonzero(first == number))])
        assert (second == own).sum() == LEAST
    assert len(np.unique(second[left < 25])) == 1


def test_a_unit_is_not_divided(tmp_path: Path) -> None:
    """A block that has a part of a unit is dealt anew, as rows of a group lie in one."""
    deal(tmp_path, np.arange(NUM))
    unit = np.arange(NUM - 10)
    unit[4] = unit[5]
    found = deal(tmp_path, np.arange(NUM - 10), unit)
    assert (found == found[20]).sum() == LEAST
    assert (found == found[0]).sum() + (found == found[9]).sum() >= 2 * LEAST
    assert set(found[:10]).isdisjoint(found[10:])


def test_a_site_that_asks_for_more_rows_has_larger_blocks(tmp_path: Path) -> None:
    """Also on rows that a job took before: former blocks are joined, which tells nothing new."""
    first = deal(tmp_path, np.arange(NUM))
    second = Dealing(tmp_path, 12).deal(WORDS[:NUM], np.arange(NUM), lambda places: np.zeros_like(places))
    assert 12 <= np.bincount(second).min() <= np.bincount(second).max() < 24
    assert all(len(np.unique(second[first == number])) == 1 for number in np.unique(first))


def test_a_set_again_and_rows_that_come_cost_nothing(tmp_path: Path) -> None:
    """In whatever order; new rows are blocks of their own."""
    first = deal(tmp_path, np.arange(NUM))
    np.testing.assert_array_equal(deal(tmp_path, np.arange(NUM)[::-1]), first[::-1])
    more = deal(tmp_path, np.arange(NUM + 10))
    assert len(np.unique(more)) == 14
    assert set(more[:NUM]).isdisjoint(more[NUM:])


def test_two_blocks_that_differ_in_few_rows_are_not_told(tmp_path: Path) -> None:
    """What is left of a block, and one row more, is refused: with it, that block tells few rows; begun jobs go on."""
    deal(tmp_path, np.arange(5))
    deal(tmp_path, np.arange(5, 40))
    few = np.array([0, 1, 2, 3, 5])
    with pytest.raises(PolicyError, match=r"add up.*policy\.near_jobs"):
        deal(tmp_path, few)
    assert len(deal(tmp_path, few, begun=True)) == LEAST


def test_sets_without_end_are_refused_in_the_end(tmp_path: Path) -> None:
    """Blocks never number more than half of what the first ones leave unknown; earlier sets go on."""
    draw, told, refused = stream(0, "sets"), dict[bytes, None](), 0
    sets = [np.arange(NUM), *(np.sort(draw.permutation(NUM)[:40]) for _ in range(30))]
    for rows in sets:
        try:
            found = deal(tmp_path, rows)
        except PolicyError as err:
            refused += "so many sets" in str(err)
            continue
        told.update({rows[found == number].tobytes(): None for number in range(int(found.max()) + 1)})
    assert refused > 0
    assert 30 < len(told) <= (NUM + NUM // LEAST) // 2
    assert deal(tmp_path, sets[0]).max() == NUM // LEAST - 1


@pytest.mark.parametrize("number", [-7, 1 << 62])
def test_a_damaged_set_is_passed_over(tmp_path: Path, number: int) -> None:
    """A block's number in which a bit has turned ends no job, and asks for no memory; the set is kept anew."""
    deal(tmp_path, np.arange(NUM, 2 * NUM))
    first = deal(tmp_path, np.arange(NUM))
    path = max((tmp_path / FOLDER).iterdir(), key=lambda file: file.stat().st_mtime_ns)
    kept = load(path.read_bytes())
    kept["block"] = np.where(np.arange(NUM) == 0, number, kept["block"])
    path.write_bytes(save(kept))
    np.testing.assert_array_equal(deal(tmp_path, np.arange(NUM)), first)
    assert len(list(kept_sets(tmp_path / FOLDER))) == 2


def test_however_many_rows_few_blocks_are_judged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 rows without a tenth of them, hundreds of new blocks are judged in groups beside a bounded number."""
    judged: list[tuple[int, int]] = []

    def count(new: Array, earlier: Sequence[Array], least: int, beside: Sequence[Array] = ()) -> bool:
        judged.append((len(earlier), 1 + len(beside)))
        return len(new) < least

    monkeypatch.setattr(adding_up, "tells_of_few", count)
    words, draw = np.arange(4000, dtype=np.uint64) * np.uint64(977), stream(0, "many rows")
    for chosen in (np.arange(4000), np.sort(draw.permutation(4000)[:3600])):
        dealing = Dealing(tmp_path, LEAST)
        found = dealing.deal(words[chosen], chosen, lambda places: np.arange(len(places)) // LEAST)
        dealing.keep()
    assert int(found.max()) > 300
    assert sum(num for _, num in judged) > 60
    assert max(num for num, _ in judged) <= 250
    assert max(num for _, num in judged) <= 60


def fresh(places: Integers) -> Integers:
    """Five rows to a block."""
    return np.arange(len(places)) * (len(places) // LEAST) // len(places)


def test_blocks_of_a_refused_job_are_dealt_anew(tmp_path: Path) -> None:
    """Only its whole set stays remembered: a set beside it has all the blocks that it would have had, but for one."""
    refused = Dealing(tmp_path, LEAST)
    refused.deal(WORDS[:NUM], np.arange(NUM), fresh)
    refused.keep()
    assert refused.unspent
    refused.release()
    [kept] = kept_sets(tmp_path / FOLDER)
    assert {*kept} == {"words"}
    assert len(np.unique(deal(tmp_path, np.arange(NUM)))) == NUM // LEAST


def test_blocks_that_another_job_took_stay(tmp_path: Path) -> None:
    """A job on the same rows that came before the first one was refused keeps the blocks of both."""
    refused = Dealing(tmp_path, LEAST)
    refused.deal(WORDS[:NUM], np.arange(NUM), fresh)
    refused.keep()
    second = deal(tmp_path, np.arange(NUM))
    refused.release()
    np.testing.assert_array_equal(deal(tmp_path, np.arange(NUM)), second)
    assert {"words", "block"} in [{*kept} for kept in kept_sets(tmp_path / FOLDER)]


def test_the_whole_set_of_a_refused_job_counts(tmp_path: Path) -> None:
    """The sum over it was told: a block less than it would leave few rows."""
    refused = Dealing(tmp_path, LEAST)
    refused.deal(WORDS[:12], np.arange(12), fresh)
    refused.keep()
    refused.release()
    with pytest.raises(PolicyError, match=r"policy\.near_jobs"):
        deal(tmp_path, np.arange(9))


def test_blocks_of_older_rules_are_written_down_as_they_are(tmp_path: Path) -> None:
    """A job that was under way at an upgrade goes on by its own blocks, and later jobs know of them."""
    before = Dealing(tmp_path, LEAST, begun=True, as_before=True)
    own = fresh(np.arange(NUM))[::-1]
    np.testing.assert_array_equal(before.deal(WORDS[:NUM], np.arange(NUM), lambda _: own), own)
    before.keep()
    np.testing.assert_array_equal(deal(tmp_path, np.arange(NUM)), own)
