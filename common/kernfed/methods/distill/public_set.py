"""The public set of a job: unlabelled points that everyone may see, from a person's file to the bytes that travel.

The operator's command reads the file, checks it against the job's feature columns, and packs it: safetensors with one
tensor `x`, float64 (N_p, P), in the units of the data. The SHA-256 of these bytes stands in the job's `[files]`, so a
job says to the last bit what it runs on, and the bytes need not be sent to a client that has them.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed.arrays import Floats
from kernfed.errors import DataError


def pack_file(path: Path, features: tuple[str, ...]) -> bytes:
    """The packed points of a file; see `read_points`."""
    return pack(read_points(path, features))


def read_points(path: Path, features: tuple[str, ...]) -> Floats:
    """Read points: the job's feature columns of a CSV, Parquet or NPZ file, in the job's order.

    Args:
        path: The file. NPZ: array `x`, (N_p, P), and optionally `columns`, its names; else `x0`, `x1`, ...
        features: Columns wanted; others are left alone.

    Returns:
        Points, shape (N_p, P), finite.

    Raises:
        DataError: Names file, column, row and remedy.
    """
    columns = _read_columns(path, features)
    points = np.empty((len(columns[features[0]]), len(features)))
    for i, name in enumerate(features):
        values = columns[name]
        finite = np.isfinite(values)
        if not finite.all():
            row = int(np.argmin(finite)) + 1
            raise DataError(
                f"{path}: column {name!r}, row {row} (counted from 1): the value is missing or not a finite number; "
                "public points must be complete: correct it or leave the row out"
            )
        points[:, i] = values
    if len(points) == 0:
        raise DataError(f"{path}: no rows; a public set needs at least one point")
    return points


def pack(points: Floats) -> bytes:
    """Points as bytes; the same points give the same bytes."""
    data: bytes = save({"x": np.ascontiguousarray(points, dtype=np.float64)})
    return data


def unpack(content: bytes, num_columns: int) -> Floats:
    """Points from bytes, shape (N_p, P).

    Raises:
        DataError: These are not the bytes of a public set with so many columns.
    """
    try:
        arrays = load(content)
    except (SafetensorError, ValueError, KeyError) as err:
        raise DataError(f"public set: not a file that `kernfed job submit` packs: {err}; submit the job again") from err
    x = arrays.get("x")
    if len(arrays) != 1 or x is None or x.dtype != np.float64 or x.ndim != 2 or len(x) == 0:
        raise DataError("public set: it does not hold one array x of numbers, (points, columns); submit the job again")
    if x.shape[1] != num_columns:
        raise DataError(
            f"public set: {x.shape[1]} columns, but the job has {num_columns} feature columns; submit the job again "
            "without its [files] section"
        )
    if not np.isfinite(x).all():
        raise DataError("public set: it holds NaN or infinity; correct the file and submit the job again")
    points: Floats = x
    return points


def sha256(content: bytes) -> str:
    """Digest of a packed file, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _read_columns(path: Path, features: tuple[str, ...]) -> Mapping[str, Floats]:
    suffix = path.suffix.lower()
    try:
        if suffix == ".npz":
            return _from_npz(path, features)
        if suffix in (".parquet", ".pq"):
            return _from_parquet(path, features)
    except OSError as err:
        raise DataError(
            f"{path}: cannot be read: {err.strerror or err}; method.public is relative to the job file"
        ) from err
    return _from_csv(path, features)


def _from_csv(path: Path, features: tuple[str, ...]) -> Mapping[str, Floats]:
    import pandas as pd  # noqa: PLC0415  # takes a third of a second of the coordinator's start

    from kernfed.cli.predict import read_rows  # noqa: PLC0415  # loads pandas

    frame = read_rows(path)
    _check_names(path, features, list(frame.columns))
    numbers = {name: pd.to_numeric(frame[name].str.strip(), errors="coerce") for name in features}
    return {name: column.to_numpy(dtype=np.float64) for name, column in numbers.items()}


def _from_parquet(path: Path, features: tuple[str, ...]) -> Mapping[str, Floats]:
    import pandas as pd  # noqa: PLC0415  # takes a third of a second of the coordinator's start
    import pyarrow as pa  # noqa: PLC0415  # as pandas

    try:
        frame = pd.read_parquet(path)
    except (pa.ArrowException, UnicodeDecodeError) as err:
        raise DataError(f"{path}: not a sound Parquet file: {err}") from err
    _check_names(path, features, [str(c) for c in frame.columns])
    numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in features}
    return {name: column.to_numpy(dtype=np.float64, na_value=np.nan) for name, column in numbers.items()}


def _from_npz(path: Path, features: tuple[str, ...]) -> Mapping[str, Floats]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if "x" not in archive:
                raise DataError(f"{path}: no array x; write it with numpy.savez(path, x=points, columns=names)")
            x = archive["x"]
            names = [str(c) for c in archive["columns"]] if "columns" in archive else None
    except (
        *(ValueError, EOFError, OSError, AttributeError, TypeError, KeyError),
        *(RuntimeError, zipfile.BadZipFile, zlib.error),  # RuntimeError: encrypted, or packed in another way
    ) as err:
        raise DataError(f"{path}: not an NPZ archive of numbers: {err}") from err
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise DataError(
            f"{path}: array x has shape {x.shape} and type {x.dtype}; store numbers of shape (points, columns)"
        )
    names = names or [f"x{i}" for i in range(x.shape[1])]
    _check_names(path, features, names)
    return {name: x[:, names.index(name)].astype(np.float64) for name in features}


def _check_names(path: Path, features: tuple[str, ...], names: list[str]) -> None:
    missing = [name for name in features if name not in names]
    if missing:
        raise DataError(
            f"{path}: column {missing[0]!r} is missing"
            + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else "")
            + "; a public set needs every feature column of the job, and no target"
        )
