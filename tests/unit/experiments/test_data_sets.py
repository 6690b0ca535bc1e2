"""Files of experiments: a missing, cut or other one is named with where it comes from and its digest."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from kernfed_testing.places import EXPERIMENTS

sys.path.insert(0, str(EXPERIMENTS))

import data_sets
import image_files


def test_a_data_set_is_read_where_it_is_whole() -> None:
    """By name, with its arrays."""
    found = data_sets.arrays("dna")
    assert found["X_train"].shape == (2000, 180)


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_data_set_that_is_not_whole_is_named(tmp_path: Path, damage: str) -> None:
    """With its path, source and the digest that it should have."""
    whole = (data_sets.DATA / "dna.npz").read_bytes()
    if damage != "missing":
        (tmp_path / "dna.npz").write_bytes(whole[:1000] if damage == "cut" else b"PK" + whole)
    with pytest.raises(SystemExit) as ended:
        data_sets.arrays("dna", tmp_path)
    told = str(ended.value)
    assert told.startswith(f"{tmp_path / 'dna.npz'}: ")
    assert "UCI, Statlog splice junctions" in told
    assert "SHA-256" in told
    assert ("No such file" in told) == (damage == "missing")


def idx(images: int) -> dict[str, bytes]:
    """The four files, with so many images and one label for each."""
    pixels, labels = bytes(784 * images), bytes(images)
    return {
        f"{part}-{what}": header + body
        for part in ("train", "t10k")
        for what, header, body in (
            ("images-idx3-ubyte", struct.pack(">iiii", 2051, images, 28, 28), pixels),
            ("labels-idx1-ubyte", struct.pack(">ii", 2049, images), labels),
        )
    }


def test_images_are_read_plain_or_packed(tmp_path: Path) -> None:
    """Rows of 784 pixels and their labels."""
    for name, content in idx(3).items():
        packed = name.startswith("t10k")
        (tmp_path / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)
    found = image_files.read_images("MNIST", tmp_path)
    assert found is not None
    assert [part.shape for part in found] == [(3, 784), (3,), (3, 784), (3,)]
    assert not np.any(found[0])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("train-images-idx3-ubyte", idx(3)["train-images-idx3-ubyte"][:-1], "2351 bytes behind a header of 3 images"),
        ("train-images-idx3-ubyte", idx(3)["train-labels-idx1-ubyte"], "not an idx file, or a part of one"),
        ("train-labels-idx1-ubyte", b"\0\0", "not an idx file, or a part of one"),
        (
            "train-labels-idx1-ubyte.gz",
            gzip.compress(idx(3)["train-labels-idx1-ubyte"], mtime=0)[:20],
            "or a part of one",
        ),
    ],
)
def test_images_that_are_not_whole_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    """With the file and its digest."""
    for whole, right in idx(3).items():
        (tmp_path / whole).write_bytes(right)
    (tmp_path / name.removesuffix(".gz")).unlink()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        image_files.read_images("MNIST", tmp_path)
    assert str(ended.value).startswith(f"{tmp_path / name}: ")
    assert words in str(ended.value)
    assert "SHA-256" in str(ended.value)
