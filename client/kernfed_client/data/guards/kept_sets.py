"""Sets of rows that a client remembers over its jobs, as files of arrays below its state folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed import files
from kernfed.arrays import Array

MOST_BYTES = 256 << 20
"""Most disk that the sets of a folder take; beyond it large ones, those longest unused first, are forgotten: few jobs
on many rows let no set of few rows be forgotten."""


def kept_sets(folder: Path) -> Iterator[dict[str, Array]]:
    """Sets that are kept, the longest unused first; what is damaged, or of another's writing, is passed over."""
    for path in sorted(folder.glob("*.safetensors"), key=_last_used):
        try:
            kept = load(path.read_bytes())
        except (OSError, SafetensorError):
            continue
        if path.stem == _name(kept):
            yield {key: found for key, found in kept.items() if found.ndim == 1 and found.dtype.kind in "iu"}


def _name(found: Mapping[str, Array]) -> str:
    """The digest of a set's content: a file under another name was damaged."""
    named = hashlib.sha256()
    for key in sorted(found):
        named.update(key.encode() + found[key].tobytes())
    return named.hexdigest()[:32]


def _last_used(path: Path) -> tuple[float, str]:
    try:
        return path.lstat().st_mtime, path.name
    except OSError:
        return 0.0, path.name


def keep_set(folder: Path, found: Mapping[str, Array]) -> Path | None:
    """Keep a set under the digest of its content: the same rows of many jobs are one file.

    Returns:
        The file where it is new. Each job that takes the set later moves its time.
    """
    path = folder / f"{_name(found)}.safetensors"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = save(dict(found))
    with contextlib.suppress(OSError):
        if path.read_bytes() == content:
            now = max(time.time_ns(), path.lstat().st_mtime_ns + 1)
            os.utime(path, ns=(now, now))
            return None
    files.replace(path, content, durable=True, mode=0o600)
    left = MOST_BYTES - path.lstat().st_size
    for old in sorted(set(folder.glob("*.safetensors")) - {path}, key=_use):
        with contextlib.suppress(OSError):
            left -= old.lstat().st_size
            if left < 0:
                old.unlink(missing_ok=True)
    return path


def _use(path: Path) -> tuple[int, float, str]:
    """Small sets before those of twice the size, and of a size those used last."""
    when, name = _last_used(path)
    try:
        return path.lstat().st_size.bit_length(), -when, name
    except OSError:
        return 0, -when, name
