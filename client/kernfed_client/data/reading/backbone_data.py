"""Partitions for a job with a backbone: images of a folder or an NPZ file, rows, or texts, to columns f0, f1, ...

Each partition passes through the backbone once, in batches; `feature_cache` keeps the features.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kernfed import files
from kernfed.arrays import Integers
from kernfed.errors import ConfigError, DataError
from kernfed.federation.messages.data import DataSchema
from kernfed.jobs.client_file import ClientFile, PartitionFile, load_client_file
from kernfed.jobs.job_file import data_schema, load_job
from kernfed.rng import Words
from kernfed.tables import npz, parquet
from kernfed.tables.cells import label_text, merge_labels, read_number
from kernfed.tables.columns import locate_own
from kernfed.tables.csv import read_own_columns
from kernfed.tables.raw_table import Faults, RawTable, Source
from kernfed.tables.records import group_words, whole_words
from kernfed_client.data.device import choose_device
from kernfed_client.data.reading.backbones import Backbone, load_backbone, prepare_images
from kernfed_client.data.reading.feature_cache import FeatureCache, Features
from kernfed_client.data.reading.partition_data import (
    NO_GROUPS,
    PartitionData,
    check_table,
    groups_of,
    partition_source,
)

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})


@dataclass(frozen=True)
class _Input:
    """The part of a partition that a backbone reads, without its features."""

    num_rows: int
    batch: Callable[[int], Sequence[Any]]
    """Rows from an index on, at most a batch, as the backbone takes them."""
    targets: Sequence[Any]
    """Of the rows, as stored; None: no value."""
    digest: str
    """Of the content."""
    row_word: str
    records: Words
    """Of each row and its target, as it is before the backbone, (n,)."""
    group: Integers | None = None
    """Number of each row's group, (n,)."""


class BackboneReader:
    """Reads the partitions of a data set through a backbone, which is loaded when it is first needed."""

    def __init__(self, file: ClientFile, schema: DataSchema, dataset: str) -> None:
        """Load the backbone.

        Raises:
            DataError: The client file has none of that name, or it cannot be loaded.
        """
        self._schema, self._dataset, self._least = schema, dataset, file.policy.min_rows
        section = file.datasets.get(dataset)
        self._groups = NO_GROUPS if section is None else groups_of(section)
        try:
            self._backbone = load_backbone(schema.backbone, file.backbones, choose_device(file.device))
        except ConfigError as err:
            raise DataError(str(err)) from err
        self._cache = FeatureCache(file.state / "features", file.feature_cache_bytes)

    @property
    def fingerprint(self) -> str:
        """Of the backbone."""
        return self._backbone.fingerprint

    def read(self, file: PartitionFile, partition: str) -> PartitionData:
        """Read a partition and check it against the schema; its columns are the backbone's.

        A `test` partition may have a header, or arrays, and no rows.

        Raises:
            DataError: Names file, row and remedy; holds no content of cells.
        """
        source = partition_source(file, self._schema, self._dataset, partition, self._groups)
        try:
            found = self._open(source)
        except OSError as err:
            source.refuse(f"cannot be read: {err.strerror or 'input/output error'}; check the file and its permissions")
        if found.num_rows:
            features = self._features(found)
            self._check_columns(source, features.shape[1])
        elif partition == "test":  # there are no test rows, as in a table of columns
            features = np.zeros((0, len(self._schema.features)), dtype=np.float32)
        else:
            source.refuse("has no rows; there must be at least one")
        rows = np.arange(1, found.num_rows + 1, dtype=np.int64)
        of_file = found.records, found.group
        x = features.astype(np.float64)
        if source.has_labels:
            texts = [label_text(target) or "" for target in found.targets]
            index: dict[str, int] = {text: i for i, text in enumerate(sorted(set(texts)))}
            codes = np.array([index[text] for text in texts], dtype=np.int64)
            merged = merge_labels(list(index), codes, file.missing)
            table = RawTable(x, None, *merged, rows, found.row_word, *of_file)
        else:
            faults, name = Faults(source, found.row_word), source.target or ""
            y = [read_number(target, source, faults, name, row) for row, target in enumerate(found.targets, start=1)]
            faults.raise_if_any()
            table = RawTable(x, np.array(y), None, (), rows, found.row_word, *of_file)
        return check_table(source, self._schema, table, self._least)

    def _features(self, found: _Input) -> Features:
        backbone = self._backbone
        key = hashlib.sha256(f"{backbone.fingerprint} {found.digest}".encode()).hexdigest()
        features = self._cache.get(key)
        if features is None:
            features = backbone.features(found.batch, found.num_rows)
            self._cache.put(key, features)
        return features

    def _open(self, source: Source) -> _Input:
        file, backbone = source.file, self._backbone
        if not file.path.exists():
            source.refuse(f"no such file; correct {source.key('path')}")
        if backbone.reads_text or file.text is not None:
            return _texts(source, backbone)
        if file.path.is_dir():
            return _folder(source, backbone)
        if file.path.suffix.lower() != ".npz" and file.format != "npz":
            source.refuse("a backbone reads a folder of images, an NPZ file, or, with `text`, a CSV or Parquet file")
        return _arrays(source, backbone)

    def _check_columns(self, source: Source, num_columns: int) -> None:
        wanted = tuple(f"f{i}" for i in range(num_columns))
        if self._schema.features != wanted:
            source.refuse(
                f"backbone {self._schema.backbone!r} gives {num_columns} columns, but the job names "
                f'{len(self._schema.features)} ({self._schema.features[0]}, …); write features = ["f[0:{num_columns}]"]'
            )


def write_features(config: Path, job_path: Path, partition: str, out: Path) -> tuple[int, int]:
    """Write a partition's features as an NPZ file that jobs without a backbone, and models, read.

    Args:
        config: The client file.
        job_path: A job file that names the backbone.
        partition: `train` or `test`.
        out: Made or replaced.

    Returns:
        Rows and columns.

    Raises:
        ConfigError: The job has no backbone, or the client file no such partition.
        DataError: The data do not fit.
    """
    job, _ = load_job(job_path)
    schema, file = data_schema(job), load_client_file(config)
    if not schema.backbone:
        raise ConfigError(f"{job_path}: names no data.backbone, so its columns are those of the data")
    section = file.datasets.get(job.cohort.dataset)
    part = getattr(section, partition, None) if partition in ("train", "test") else None
    if part is None:
        raise ConfigError(f"{config}: has no [datasets.{job.cohort.dataset}.{partition}]")
    found = BackboneReader(file, schema, job.cohort.dataset).read(part, partition)
    y = found.y if found.labels is None else np.array(found.labels)
    assert y is not None  # noqa: S101  # one of the two is there
    with files.output(out) as written:
        np.savez(written, x=found.x.astype(np.float32), y=y, columns=np.array(schema.features))
    return found.num_rows, found.x.shape[1]


def _folder(source: Source, backbone: Backbone) -> _Input:
    """Images in a sub-folder per class, in the order of their names."""
    root, section = source.file.path, backbone.section
    files = sorted(p for p in root.glob("*/*") if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())
    if not source.has_labels:
        source.refuse("a folder of images has classes, its sub-folders, but the task is regression; use an NPZ file")
    if not files:
        source.refuse("holds no images; put them into a sub-folder per class, e.g. cats/1.png")
    if section.image_size is None:
        source.refuse(f"images of a folder need image_size in [backbones.{backbone.name}] of the client file")
    if source.group is not None:
        source.refuse(f"a folder of images has no column of groups; use an NPZ file, or remove {source.key('group')}")
    digest, records = hashlib.sha256(), []
    for path in files:
        content = hashlib.sha256(path.read_bytes()).digest()
        digest.update(f"{path.relative_to(root)}\n".encode())
        digest.update(content)
        records.append(content + path.parent.name.encode())

    def batch(start: int) -> Any:
        chosen = list(enumerate(files))[start : start + section.batch_size]
        return np.concatenate(
            [prepare_images(_decode(source, path, i + 1, section.channels)[None], section) for i, path in chosen]
        )

    targets, words = [path.parent.name for path in files], whole_words(records)
    return _Input(len(files), batch, targets, digest.hexdigest(), "image", words)


def _decode(source: Source, path: Path, number: int, channels: int) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  # an optional dependency
    except ImportError:
        source.refuse("images need Pillow; pip install 'kernfed[images]'")
    try:
        with Image.open(path) as image:
            return np.array(image.convert("RGB" if channels == 3 else "L"))
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
        source.refuse(f"image {number} in the order of names cannot be decoded; remove or replace it")


def _arrays(source: Source, backbone: Backbone) -> _Input:
    """An NPZ file: images of bytes, (n, h, w) or (n, h, w, c), or rows of numbers, (n, d)."""
    file, section = source.file, backbone.section
    try:
        with np.load(file.path, allow_pickle=False) as archive:
            wanted = (file.x_key, file.y_key, *(() if source.group is None else (source.group,)))
            npz.require_room(source, archive, wanted)
            x, y, *groups = (archive[name] for name in wanted)
    except KeyError:
        what = "" if source.group is None else f", or none of groups, {source.group!r}; correct group"
        source.refuse(
            f"has no array {file.x_key!r} or {file.y_key!r}{what}; correct x_key and y_key in the client file",
            public="lacks an array",
        )
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, AttributeError, TypeError):
        source.refuse(f"is not an NPZ archive of numbers and text; correct {source.key('format')}")
    images = x.ndim in (3, 4) and x.dtype == np.uint8
    if not (images or (x.ndim == 2 and x.dtype.kind in "biuf")) or y.ndim != 1 or len(y) != len(x):
        source.refuse(
            f"x has shape {x.shape} and type {x.dtype}, y {y.shape}; store images as uint8 (rows, height, width[, 3]), "
            "or numbers (rows, columns), and one target per row"
        )
    facts = json.dumps([list(x.shape), str(x.dtype)])
    digest = hashlib.sha256(facts.encode() + np.ascontiguousarray(x).tobytes()).hexdigest()

    def batch(start: int) -> Any:
        rows = x[start : start + section.batch_size]
        return prepare_images(rows, section) if images else rows.astype(np.float32)

    targets = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in y.tolist()]
    words = whole_words(row.tobytes() + b"\0" + str(target).encode() for row, target in zip(x, targets, strict=True))
    group = npz.numbered_groups(source, groups[0], len(x)) if groups else None
    return _Input(len(x), batch, targets, digest, "row", words, group)


def _texts(source: Source, backbone: Backbone) -> _Input:
    """A column of texts beside the target, in a CSV or Parquet file."""
    file, section = source.file, backbone.section
    if not backbone.reads_text or file.text is None:
        what = "text: name its column in" if backbone.reads_text else "no text: remove"
        source.refuse(f"backbone {backbone.name!r} reads {what} {source.key('text')}")
    assert source.target is not None  # noqa: S101  # a partition has one
    text, target = file.text, source.in_file(source.target)

    def places(present: Sequence[str]) -> list[int]:
        found = [
            locate_own(source, present, text, "text", "text"),
            locate_own(source, present, target, "target", "columns"),
        ]
        own = source.group
        return found if own is None else [*found, locate_own(source, present, own, "group", "group")]

    texts: list[str]
    targets: Sequence[object]
    groups: Sequence[Sequence[object]]
    wanted = [text, target, *(() if source.group is None else (source.group,))]
    try:
        if file.path.suffix.lower() in (".parquet", ".pq") or file.format == "parquet":
            with parquet.open_parquet(file.path) as opened:
                places(opened.schema_arrow.names)
                parquet.require_room(source, opened, wanted)
                table = opened.read(columns=wanted)
            texts = ["" if cell is None else str(cell) for cell in parquet.text_cells(source, table[text])]
            targets, *groups = (parquet.text_cells(source, table[name]) for name in wanted[1:])
        else:
            texts, targets, *groups = read_own_columns(source, places)
    except (pa.ArrowException, UnicodeDecodeError) as err:
        source.refuse(f"columns {text!r} and {target!r} cannot be read ({type(err).__name__}); write the file again")
    digest = hashlib.sha256("\x00".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    rows = np.arange(1, len(texts) + 1)
    group = group_words(source, groups[0], rows - 1, rows, "row") if groups else None
    both = (f"{text}\0{label}" for text, label in zip(texts, targets, strict=True))
    words = whole_words(record.encode("utf-8", "surrogatepass") for record in both)

    def batch(start: int) -> list[str]:
        return texts[start : start + section.batch_size]

    return _Input(len(texts), batch, targets, digest, "row", words, group)
