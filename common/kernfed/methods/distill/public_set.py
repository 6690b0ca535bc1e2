"""The public set of a job: unlabelled points that everyone may see, from a person's file to the bytes that travel.

The operator's command reads the file, checks it against the job's feature columns, and packs it: safetensors with one
tensor `x`, float64 (N_p, P), in the units of the data. The SHA-256 of these bytes stands in the job's `[files]`, so a
job says to the last bit what it runs on, and the bytes need not be sent to a client that has them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed.arrays import Floats
from kernfed.errors import DataError
from kernfed.jobs.client_file import PartitionFile, format_by_suffix
from kernfed.tables.raw_table import Source

_MOST_HEADER = 4096
"""Bytes of the header of a packed file, which names one array."""


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
    from kernfed.tables.read import read, refuse_gaps  # noqa: PLC0415  # the coordinator's image has no pyarrow

    file = PartitionFile(path=path, format=format_by_suffix(path) or "csv")
    settings = {"path": "method.public, which is relative to the job file"}
    source = Source(file, str(path), features, setting=settings.get)
    return refuse_gaps(source, read(source), "public points must be complete: correct it or leave the row out").x


def pack(points: Floats) -> bytes:
    """Points as bytes; the same points give the same bytes."""
    data: bytes = save({"x": np.ascontiguousarray(points, dtype=np.float64)})
    return data


def unpack(content: bytes, num_columns: int | None = None) -> Floats:
    """Points from bytes, shape (N_p, P).

    Args:
        content: The bytes.
        num_columns: P; None: any.

    Raises:
        DataError: These are not the bytes of a public set with so many columns.
    """
    if int.from_bytes(content[:8], "little") > _MOST_HEADER:  # of millions of names, which take minutes to read
        raise DataError(
            "public set: not a file that `kernfed job submit` packs: its header is too long; submit the job again"
        )
    try:
        arrays = load(content)
    except (SafetensorError, ValueError, KeyError) as err:
        raise DataError(f"public set: not a file that `kernfed job submit` packs: {err}; submit the job again") from err
    x = arrays.get("x")
    if len(arrays) != 1 or x is None or x.dtype != np.float64 or x.ndim != 2 or len(x) == 0:
        raise DataError("public set: it does not hold one array x of numbers, (points, columns); submit the job again")
    if num_columns is not None and x.shape[1] != num_columns:
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
