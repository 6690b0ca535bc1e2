"""NPZ archives: the right reading, or a refusal that names file, array and row and no content."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import DataError
from kernfed_testing.partitions import SECRET, read, regression


def test_npz_columns_by_position_or_by_the_client_file(tmp_path: Path) -> None:
    """Columns of an npz file without names go by position, or by the names in the client file."""
    np.savez(tmp_path / "site.npz", x=np.array([[1, 2, 3.5]]), y=np.array([4.5]))
    assert read(tmp_path / "site.npz", regression(features=("x2", "x0"))).x.tolist() == [[3.5, 1.0]]
    data = read(tmp_path / "site.npz", regression(), x_columns=["b", "c", "a"])
    assert data.x.tolist() == [[3.5, 1.0]]
    assert data.y is not None
    assert data.y.tolist() == [4.5]


X = np.array([[1.0, 2.0], [3.0, 4.0]])
Y = np.array([0, 1])
BAD_NPZ: dict[str, tuple[dict[str, Any], list[str]]] = {
    "objects": ({"x": np.array([[1, SECRET]], dtype=object), "y": Y}, ["array 'x'", "Python objects"]),
    "object labels": ({"x": X, "y": np.array([0, SECRET], dtype=object)}, ["array 'y'", "Python objects"]),
    "unequal": ({"x": X, "y": np.array([0, 1, 1])}, ["'y' has shape (3,)", "2 rows"]),
    "two-dimensional y": ({"x": X, "y": Y[:, None]}, ["'y' has shape (2, 1)"]),
    "one-dimensional x": ({"x": X[0], "y": Y}, ["'x' has shape (2,)"]),
    "text x": ({"x": np.array([["1", SECRET]]), "y": Y[:1]}, ["type <U"]),
    "complex x": ({"x": X.astype(complex), "y": Y}, ["type complex128"]),
    "no y": ({"x": X, "target": Y}, ["no array 'y' but columns, x, target", "`y_key`"]),
    "no rows": ({"x": X[:0], "y": Y[:0]}, ["has no rows"]),
    "infinity": ({"x": np.array([[1, 2], [np.inf, 4]]), "y": Y}, ["column 'a', row 2", "infinite"]),
    "NaN": ({"x": np.array([[1, 2], [np.nan, 4]]), "y": Y}, ["column 'a', row 2: no value"]),
    "unknown class": ({"x": X, "y": np.array(["0", SECRET])}, ["column 'y', row 2", "does not know"]),
    "too few names": ({"x": X, "y": Y, "columns": np.array(["a"])}, ["1 column names for the 2 columns"]),
    "other names": ({"x": X, "y": Y, "columns": np.array(["a", "c"])}, ["column 'b' is missing"]),
    "names of a wrong type": ({"x": X, "y": Y, "columns": np.array([1, 2])}, ["'columns' must be text"]),
    "dates": ({"x": X, "y": Y.astype("datetime64[s]")}, ["cannot name classes"]),
    "bytes": ({"x": X, "y": np.array([b"0", b"\xff"])}, ["not UTF-8"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_NPZ)
def test_bad_npz_is_refused_by_place_without_content(tmp_path: Path, case: str) -> None:
    """A fault in an npz file is told by array and row, without the content of a cell."""
    arrays, expected = BAD_NPZ[case]
    np.savez(tmp_path / "site.npz", **({"columns": np.array(["a", "b"])} | arrays))
    message = ""
    with pytest.raises(DataError) as caught:
        read(tmp_path / "site.npz")
    message = str(caught.value)
    for part in ["data set heart, train (site.npz)", *expected]:
        assert part in message.replace("<U12", "<U")
    assert SECRET not in message


def test_files_that_only_claim_to_be_npz_are_refused(tmp_path: Path) -> None:
    """Text, damaged archives, single arrays and impossible sizes are refused under the name of the file."""
    path = tmp_path / "site.npz"
    np.savez(path, x=X, y=Y)
    content = path.read_bytes()
    for damaged in (b"a,b,y\n", content[:-30], b"\x80\x04.", content[:60] + b"\xff" * 60 + content[120:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"site\.npz"):
            read(path)
    with path.open("wb") as file:
        np.save(file, X)
    with pytest.raises(DataError, match="single array"):
        read(path)
    with zipfile.ZipFile(path, "w") as archive:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**13, 2)})
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(DataError, match=r"memory|damaged"):
        read(path)
