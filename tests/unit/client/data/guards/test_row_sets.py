"""Rows of earlier jobs: what differs from them by a few is refused where the job chose them, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save
from structlog.testing import capture_logs

from kernfed.errors import PolicyError
from kernfed.federation.messages.data import ColumnRange, DataSchema
from kernfed.jobs.client_file import ClientFile, DatasetSection, PartitionFile, PolicySection
from kernfed_client.data.guards import kept_sets
from kernfed_client.data.guards.row_sets import refuse_near_sets
from kernfed_client.data.reading.partitions import load_local_data
from kernfed_testing.partitions import regression

PLAIN = replace(regression(), test_fraction=0.0)


def site(folder: Path, num: int, policy: PolicySection | None = None) -> ClientFile:
    """A client whose file has so many rows; fewer of them are the first of more."""
    drawn = np.random.default_rng(7).normal(size=(200, 3))[:num]
    (folder / "rows.csv").write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in drawn.tolist()))
    section = DatasetSection(train=PartitionFile(path=folder / "rows.csv"))
    return ClientFile(state=folder / "state", datasets={"d": section}, policy=policy or PolicySection())


def ask(file: ClientFile, schema: DataSchema = PLAIN) -> None:
    """Prepare a job's rows, as a client does before it answers."""
    refuse_near_sets(file, "d", schema, load_local_data(file, "d", schema, "va"))


def test_the_same_rows_and_many_others_pass(tmp_path: Path) -> None:
    """A job again, with other columns, with a quarter held out, and after ten rows came."""
    for _ in range(2):
        ask(site(tmp_path, 60))
    ask(site(tmp_path, 60), replace(PLAIN, features=("a",)))
    ask(site(tmp_path, 60), replace(PLAIN, test_fraction=0.25, by_content=True, by_record=True))
    ask(site(tmp_path, 70))
    assert len(list((tmp_path / "state" / "row-sets").glob("*/*"))) >= 3


def test_a_job_that_chooses_a_few_rows_more_or_less_is_refused(tmp_path: Path) -> None:
    """The file is the same, so its ranges do it; with the remedies, and no number; a policy may allow it."""
    wide, tight = (replace(PLAIN, ranges=(ColumnRange(column="a", low=-99.0, high=limit),)) for limit in (99.0, 0.1))
    file = site(tmp_path, 60)
    whole = load_local_data(file, "d", wide, "va")
    few = replace(whole, train=whole.train.take(np.arange(57)))
    refuse_near_sets(file, "d", wide, whole)
    refusal = pytest.raises(PolicyError, match=r"differ from those of an earlier job.*policy\.near_jobs")
    with refusal as refused, capture_logs() as logged:
        refuse_near_sets(file, "d", tight, few)
    assert [entry["rows"] for entry in logged] == [[59, 60, 61]]  # lines, for the site alone
    assert not any(char.isdigit() for char in str(refused.value))
    for policy in (PolicySection(near_jobs="allow"), PolicySection(min_rows=1)):
        refuse_near_sets(file.model_copy(update={"policy": policy}), "d", tight, few)


def test_a_job_of_too_few_rows_is_no_earlier_job(tmp_path: Path) -> None:
    """The policy refuses it, so it is told nothing: what the next one leaves out says nothing about its rows."""
    file = site(tmp_path, 60)
    whole = load_local_data(file, "d", PLAIN, "va")
    for num in (9, 12):
        refuse_near_sets(file, "d", PLAIN, replace(whole, train=whole.train.take(np.arange(num))))
    with pytest.raises(PolicyError, match="differ from those of an earlier job"):
        refuse_near_sets(file, "d", PLAIN, replace(whole, train=whole.train.take(np.arange(13))))


@pytest.mark.parametrize("num", [59, 61, 69])
def test_jobs_may_wait_until_more_rows_came(tmp_path: Path, num: int) -> None:
    """A site may correct its file and go on, or have jobs wait for as many changes as a number stands for."""
    ask(site(tmp_path, 60))
    with pytest.raises(PolicyError, match=r"where rows were added or corrected, wait for more"):
        ask(site(tmp_path, num, PolicySection(near_jobs="wait-for-rows")))
    with capture_logs() as told:
        ask(site(tmp_path, num))
    assert [line["dataset"] for line in told if "the data changed since" in line["event"]] == ["d"]


def test_the_longest_unused_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sets take so much disk at most, and one is always kept; a broken one is passed over."""
    monkeypatch.setattr(kept_sets, "MOST_BYTES", 4000)
    for num in (60, 80, 100, 120):
        ask(site(tmp_path, num))
    [folder] = (tmp_path / "state" / "row-sets").iterdir()
    kept = list(folder.iterdir())
    assert 1 <= len(kept) < 4
    for path in kept:
        path.write_bytes(b"broken")
    ask(site(tmp_path, 61))


def test_large_sets_let_no_small_one_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs on many rows would else make room for other blocks of few rows, and these together tell each of them."""
    monkeypatch.setattr(kept_sets, "MOST_BYTES", 10_000)
    for num in (10, 20, *range(500, 510)):
        kept_sets.keep_set(tmp_path, {"words": np.arange(num)})
    sizes = sorted(len(kept["words"]) for kept in kept_sets.kept_sets(tmp_path))
    assert sizes[:2] == [10, 20]
    assert len(sizes) == 4
    assert sizes[-1] == 509


def test_what_a_client_did_not_write_is_passed_over(tmp_path: Path) -> None:
    """Arrays of another shape or kind, a folder and a link that leads nowhere, where sets are kept."""
    ask(site(tmp_path, 60))
    [kept] = (tmp_path / "state" / "row-sets").glob("*/*")
    strange = {key: found.reshape(-1, 1).astype(np.float32) for key, found in load(kept.read_bytes()).items()}
    kept.write_bytes(save(strange))
    (kept.parent / "folder.safetensors").mkdir()
    (kept.parent / "link.safetensors").symlink_to(tmp_path / "nowhere")
    ask(site(tmp_path, 60, PolicySection(near_jobs="wait-for-rows")), replace(PLAIN, features=("a",)))
    assert len(list(kept.parent.iterdir())) == 4


def test_a_draw_by_another_seed_is_no_change_of_the_file(tmp_path: Path) -> None:
    """It holds out other rows, as it is asked to, and no column is at fault."""
    file = site(tmp_path, 100, PolicySection(drawn_splits=True))
    for seed in (1, 2, 3):
        drawn = replace(PLAIN, test_fraction=0.5, seed=seed)
        assert not refuse_near_sets(file, "d", drawn, load_local_data(file, "d", drawn, "va"))


def test_a_column_that_each_export_changes_is_told(tmp_path: Path) -> None:
    """The same rows with another time: others are held out, and that is told; rows at the end change little."""
    schema = replace(PLAIN, test_fraction=0.25, by_content=True, by_record=True)
    drawn = np.random.default_rng(7).normal(size=(110, 3)).tolist()

    def told(num: int, time: str, wanted: DataSchema = schema) -> bool:
        lines = [f"{a},{b},{y},{time}{i}\n" for i, (a, b, y) in enumerate(drawn[:num])]
        (tmp_path / "rows.csv").write_text("a,b,y,exported\n" + "".join(lines))
        section = DatasetSection(train=PartitionFile(path=tmp_path / "rows.csv"))
        file = ClientFile(state=tmp_path / "state", datasets={"d": section})
        return refuse_near_sets(file, "d", wanted, load_local_data(file, "d", wanted, "va"))

    assert not told(100, "monday")
    assert not told(100, "monday", replace(schema, test_fraction=0.5))
    assert not told(110, "monday")
    assert told(110, "tuesday")
    assert not told(110, "tuesday")


def named(file: ClientFile, **paths: Path) -> ClientFile:
    """The same client with data sets of other names."""
    more = {name: DatasetSection(train=PartitionFile(path=path)) for name, path in paths.items()}
    return file.model_copy(update={"datasets": {**file.datasets, **more}})


def test_another_name_of_the_file_or_of_a_copy_does_not_help(tmp_path: Path) -> None:
    """Neither a link, on other ranges, nor a copy with a row more, on other columns."""
    (tmp_path / "more").mkdir()
    file = site(tmp_path, 60)
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    site(tmp_path / "more", 61)
    file = named(file, link=tmp_path / "link.csv", more=tmp_path / "more" / "rows.csv")
    ask(file)
    few = load_local_data(file, "link", PLAIN, "va")
    few = replace(few, train=few.train.take(np.arange(57)))
    refusal = r"differ from those of an earlier job.*use the data set, target, features"
    with pytest.raises(PolicyError, match=refusal):
        refuse_near_sets(file, "link", PLAIN, few)
    narrow = replace(PLAIN, features=("a",))
    with pytest.raises(PolicyError, match=refusal):
        refuse_near_sets(file, "more", narrow, load_local_data(file, "more", narrow, "va"))
    alone = file.model_copy(update={"datasets": {"more": file.datasets["more"]}})  # the site gave it a new name
    refuse_near_sets(alone, "more", narrow, load_local_data(alone, "more", narrow, "va"))
