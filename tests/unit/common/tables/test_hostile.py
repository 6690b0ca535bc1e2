"""Files of a few kilobytes that unpack to gigabytes are refused before they do."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernfed.errors import DataError
from kernfed_testing.partitions import read, regression

ROOM = 100 << 20
"""Bytes that may be used."""
ROWS = 2_000_000
BIG = "a" * 100_000


def zeros_npz(path: Path) -> None:
    np.savez_compressed(path, x=np.zeros((ROWS, 2)), y=np.zeros(ROWS), columns=np.array(["a", "b"]))


def claiming_npz(path: Path) -> None:
    """Its headers state rows that are not there."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, shape in (("x", (10**12, 2)), ("y", (10**12,))):
            header = io.BytesIO()
            about = {"descr": "<f8", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(header, about)
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(160))


def zeros_parquet(path: Path) -> None:
    table = pa.table({name: np.zeros(ROWS) for name in "aby"})
    pq.write_table(table, path, compression="zstd")


def repeated_text_parquet(path: Path) -> None:
    table = pa.table({"a": pa.array([BIG] * 1000), "b": np.zeros(1000), "y": np.zeros(1000)})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)


BOMBS: dict[str, tuple[Callable[[Path], None], str]] = {
    "zeros.npz": (zeros_npz, "takes about 0.1 GiB once it is unpacked, and 0.1 GiB may be used here; use fewer rows"),
    "claims.npz": (claiming_npz, "(does not fit into this machine's memory|is damaged)"),
    "zeros.parquet": (zeros_parquet, "takes about 0.1 GiB once it is unpacked"),
    "text.parquet": (repeated_text_parquet, "takes about 0.2 GiB once it is unpacked"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says what the file takes and what there is."""
    make, words = BOMBS[name]
    make(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 1 << 20
    monkeypatch.setattr("kernfed.tables.raw_table.available_bytes", lambda: ROOM * 10 // 9)
    with pytest.raises(DataError, match=words):
        read(tmp_path / name, regression())


def test_text_that_repeats_is_read_once(tmp_path: Path) -> None:
    """A few kilobytes that stand for 2,000 long texts are told as a fault, and never written out."""
    codes = pa.array([*[0] * 3, *[1] * 2000, 2], pa.int32())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["1", BIG, "2"]))
    table = pa.table({"a": column, "b": np.zeros(2004), "y": np.zeros(2004)})
    pq.write_table(table, tmp_path / "site.parquet", compression="zstd")
    assert (tmp_path / "site.parquet").stat().st_size < 10_000
    with pytest.raises(
        DataError, match=r"column 'a', row 4 \(the first of 2,000 rows\): text where a number is needed"
    ):
        read(tmp_path / "site.parquet", regression())
