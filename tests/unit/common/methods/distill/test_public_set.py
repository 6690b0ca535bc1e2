"""The public set: read from a person's file, packed, named by its digest in the job."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernfed.errors import ConfigError, DataError
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.named_files import attach_files
from kernfed.methods.distill.public_set import pack, read_points, sha256, unpack

POINTS = np.array([[1.5, -2.0], [0.1, 3e8]])
JOB = """name = "x"
[method]
name = "distill"
public = "{}"
[data]
task = "regression"
target = "y"
features = ["b", "a"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frame = pd.DataFrame(POINTS, columns=["b", "a"]).assign(extra="text")[["a", "extra", "b"]]
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.to_parquet(tmp_path / "p.parquet")
    np.savez(tmp_path / "p.npz", x=POINTS[:, ::-1], columns=["a", "b"])
    return tmp_path


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.npz"])
def test_every_format_gives_the_same_bytes(folder: Path, name: str) -> None:
    """Columns are found by name and brought into the job's order; the digest is that of the numbers."""
    text = JOB.format(name)
    job, whole, files = attach_files(parse_job(text), text, folder)
    assert job.files == {name: sha256(pack(POINTS))}
    assert (unpack(files[job.files[name]], 2) == POINTS).all()
    assert parse_job(whole) == job
    assert attach_files(job, whole, folder) == (job, whole, files)


def test_a_job_of_another_method_names_no_file(folder: Path) -> None:
    """Its text stays as it is."""
    text = JOB.format("x").replace('name = "distill"\npublic = "x"', 'name = "local"')
    assert attach_files(parse_job(text), text, folder) == (parse_job(text), text, {})


def test_a_job_with_digests_holds_to_them(folder: Path) -> None:
    """The file may be gone, for the coordinator may have it; one that changed is refused."""
    text = JOB.format("p.csv")
    job, whole, _ = attach_files(parse_job(text), text, folder)
    (folder / "p.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="remove the section"):
        attach_files(job, whole, folder)
    (folder / "p.csv").unlink()
    assert attach_files(job, whole, folder) == (job, whole, {})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,c\n1,2\n", "column 'b' is missing"),
        ("a,b\n1,2\n3,\n", "column 'b', line 3: no value; public points must be complete"),
        ("a,b\n1,x\n", "column 'b', line 2: text where a number is needed; correct it$"),
        ("a,b\n1,inf\n", "column 'b', line 2: infinite or not a number; correct it$"),
        ("a,b\n", "no rows"),
        ("", "empty"),
    ],
)
def test_faults_name_file_column_and_row(tmp_path: Path, content: str, words: str) -> None:
    """A public set is complete, or refused."""
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(DataError, match=words) as caught:
        read_points(tmp_path / "p.csv", ("a", "b"))
    assert "p.csv" in str(caught.value)


@pytest.mark.parametrize("name", ["gone.csv", "gone.npz", "gone.parquet"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """Whatever its format."""
    with pytest.raises(DataError, match=name):
        read_points(tmp_path / name, ("a",))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    """Text, pickles and arrays of the wrong shape are not read."""
    (tmp_path / "t.npz").write_text("no archive")
    np.savez(tmp_path / "object.npz", x=np.array([{}], dtype=object))
    np.savez(tmp_path / "flat.npz", x=np.zeros(3))
    np.savez(tmp_path / "other.npz", y=np.zeros((3, 1)))
    (tmp_path / "t.parquet").write_text("no table")
    for name in ("t.npz", "object.npz", "flat.npz", "other.npz", "t.parquet"):
        with pytest.raises(DataError, match=name):
            read_points(tmp_path / name, ("x0",))


def test_packed_bytes_are_checked() -> None:
    """Garbage, other tensors, other columns and NaN are refused."""
    from safetensors.numpy import save

    for content in (
        b"",
        b"garbage",
        save({"y": POINTS}),
        save({"x": POINTS.astype(np.float32)}),
        save({"x": POINTS[0]}),
    ):
        with pytest.raises(DataError, match="submit the job again"):
            unpack(content, 2)
    with pytest.raises(DataError, match="3 feature columns"):
        unpack(pack(POINTS), 3)
    with pytest.raises(DataError, match="NaN"):
        unpack(pack(POINTS * np.nan), 2)


def _stated(shape: list[int], offsets: tuple[int, int], more: str = "") -> bytes:
    header = f'{{"x":{{"dtype":"F64","shape":{shape},"data_offsets":{list(offsets)}}}{more}}}'.encode()
    return len(header).to_bytes(8, "little") + header + bytes(16)


LIARS = {
    "a header beyond the file": (2**63 - 1).to_bytes(8, "little") + b"{}",
    "a header of many names": _stated([1, 2], (0, 16), "".join(f',"{i}":0' for i in range(2000))),
    "rows that are not there": _stated([10**12, 2], (0, 16)),
    "bytes that are not there": _stated([10**12, 2], (0, 16 * 10**12)),
    "two arrays in one place": _stated([1, 2], (0, 16), ',"y":{"dtype":"F64","shape":[1,2],"data_offsets":[0,16]}'),
    "a size beyond all numbers": _stated([2**32, 2**32], (0, 0)),
    "no rows of very many columns": _stated([0, 2**62], (0, 0)),
    "more axes than there are": _stated([1] * 100, (0, 16)),
    "lists in lists": b"\x88\x13" + bytes(6) + b'{"x":' + b"[" * 2496 + b"]" * 2496 + b"}" + b" " * 4,
}


@pytest.mark.redteam
@pytest.mark.parametrize("case", LIARS)
def test_a_file_that_lies_about_itself_is_refused(case: str) -> None:
    """Headers that claim, overlap, overflow or never end cost neither memory nor time."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="public set: "):
            unpack(LIARS[case], 2)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
