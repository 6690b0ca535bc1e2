"""Arrays that a job keeps at this client from round to round, with a digest: what was damaged counts as lost.

Damage may leave a file that reads well and holds other numbers, which would go into answers without a word. What is
lost is made again, or the coordinator is asked for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from kernfed import files
from kernfed.arrays import GREATEST, Array

log = structlog.get_logger(__name__)

_FACTS, _DIGEST = "facts", "sha256"


def write(
    path: Path, arrays: Mapping[str, Array], facts: Mapping[str, Any] | None = None, *, durable: bool = True
) -> None:
    """Write a file, whole or not at all; its folder is made where it is missing.

    Args:
        path: Its place.
        arrays: By name.
        facts: JSON values beside them.
        durable: Whether it must outlast a loss of power.

    Raises:
        OSError: The disk is full, or gone.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    told = json.dumps(dict(facts or {}))
    kept = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    files.replace(path, save(kept, {_FACTS: told, _DIGEST: _digest(kept, told)}), durable=durable)


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]] | None:
    """Arrays and facts; None where there is no such file, it was damaged, or it holds numbers beyond `GREATEST`.

    A file of an earlier release has no digest; its numbers alone are looked at.
    """
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            arrays: dict[str, Array] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        facts = json.loads(metadata.get(_FACTS, "{}"))
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, ValueError) as err:
        log.warning("a file of a job cannot be read, and counts as lost", file=str(path), error=str(err))
        return None
    damaged = metadata.get(_DIGEST, "") not in ("", _digest(arrays, metadata.get(_FACTS, "{}")))
    if damaged or not all(map(_sound, arrays.values())) or not isinstance(facts, dict):
        log.warning("a file of a job holds other numbers than were written, and counts as lost", file=str(path))
        return None
    return arrays, facts


def _sound(array: Array) -> bool:
    return array.dtype.kind != "f" or bool((np.abs(array.astype(np.float64, copy=False)) <= GREATEST).all())


def _digest(arrays: Mapping[str, Array], facts: str) -> str:
    found = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()
