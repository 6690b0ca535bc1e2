"""Features of frozen backbones on disk, so that each partition passes through its backbone once.

An entry's name is the digest of all that its numbers depend on: the backbone's fingerprint and the input's content.
What is read back is checked against a digest of its own; what does not fit is made again. The least recently used
entries go when the bound is reached.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import structlog
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from kernfed import files

log = structlog.get_logger(__name__)

Features = npt.NDArray[np.float32]
_SUFFIX = ".safetensors"


class FeatureCache:
    """A folder of features, of at most so many bytes."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Name the folder, which is made when something is kept.

        Args:
            folder: Where.
            max_bytes: Bound of all entries together; 0: nothing is kept.
        """
        self._folder = folder
        self._max_bytes = max_bytes

    def get(self, key: str) -> Features | None:
        """Features kept under a key, (n, d); None where there are none, or they are damaged."""
        path = self._path(key)
        try:
            with safe_open(path, framework="numpy") as file:
                wanted = (file.metadata() or {}).get("sha256", "")
                found: Features = file.get_tensor("features")
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError) as err:
            self._drop(path, str(err))
            return None
        if _digest(found) != wanted:
            self._drop(path, "its digest is another")
            return None
        os.utime(path)
        log.info("features from the cache", rows=len(found), columns=found.shape[1])
        return found

    def put(self, key: str, features: Features) -> None:
        """Keep features, unless they alone exceed the bound; older entries make room."""
        data: bytes = save({"features": features}, metadata={"sha256": _digest(features)})
        if len(data) > self._max_bytes:
            if self._max_bytes:
                log.warning("features exceed the cache", bytes=len(data), feature_cache_bytes=self._max_bytes)
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._make_room(self._max_bytes - len(data))
        try:
            files.replace(self._path(key), data, durable=False)  # made again; the digest in it tells damage
        except OSError as err:  # a full disk costs time later, no job
            log.warning("features were not kept", error=str(err))

    def _make_room(self, allowed: int) -> None:
        entries = [(path.stat(), path) for path in self._folder.glob(f"*{_SUFFIX}")]
        total = sum(status.st_size for status, _ in entries)
        for status, path in sorted(entries, key=lambda entry: entry[0].st_mtime_ns):
            if total <= allowed:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size

    def _drop(self, path: Path, problem: str) -> None:
        log.warning("kept features are damaged and are made again", file=path.name, problem=problem)
        path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"


def _digest(features: Features) -> str:
    contiguous = np.ascontiguousarray(features)
    return hashlib.sha256(repr(contiguous.shape).encode() + contiguous.tobytes()).hexdigest()
