"""Files that hold the state of a run after a round: safetensors, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import load_file

from kernfed.arrays import Array
from kernfed.errors import JobError
from kernfed.files import Part, is_part
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.jobs.state import Arrays

_DTYPES: Final = {
    "float64": "F64",
    "float32": "F32",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
    "uint64": "U64",
    "bool": "BOOL",
}
_PIECE = 1 << 20
SUFFIX: Final = ".safetensors"


def write_checkpoint(folder: Path, job_id: str, checkpoint: Checkpoint) -> tuple[str, str]:
    """Write a checkpoint beside the ones before; it counts once its name is in the store.

    The arrays are written piece by piece, so that a state of many GiB is not copied. The name holds the beginning of
    the digest, so that other content never takes the place of a file that counts.

    Returns:
        File name in `folder`, and SHA-256 of its content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with Part(folder / f"{job_id}.{checkpoint.round_num}{SUFFIX}") as part:
        _write(part, checkpoint.state)
        sha256 = part.digest.hexdigest()
        part.target = folder / f"{job_id}.{checkpoint.round_num}.{sha256[:16]}{SUFFIX}"
        part.keep(durable=True)
    return part.target.name, sha256


def write_state(path: Path, state: Arrays) -> None:
    """Write the arrays of a checkpoint to a file of any name; not durable."""
    with Part(path) as part:
        _write(part, state)
        part.keep(durable=False)


def read_checkpoint(path: Path, round_num: int, sha256: str) -> Checkpoint:
    """Read a checkpoint back.

    Raises:
        JobError: The file is gone or was changed.
    """
    _check(path, round_num, sha256)
    return Checkpoint(round_num, load_file(path))


def _check(path: Path, round_num: int, sha256: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as err:
        raise JobError(
            f"the checkpoint of round {round_num} cannot be read ({err.strerror}: {path.name}); submit the job again"
        ) from err
    if found != sha256:
        raise JobError(
            f"the checkpoint of round {round_num} is damaged ({path.name}: SHA-256 is not the one noted); "
            "check the disk and submit the job again"
        )


def copy_checkpoint(path: Path, to: Path, round_num: int, sha256: str) -> None:
    """Copy the file of a checkpoint, as it was written.

    Raises:
        JobError: The file is gone or was changed; nothing is copied.
        OSError: The copy cannot be written.
    """
    _check(path, round_num, sha256)
    shutil.copyfile(path, to)


def remove_orphans(folder: Path, keep: set[str]) -> None:
    """Delete the checkpoints that a crash left between file and store, and those of finished jobs."""
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in keep and is_checkpoint(path):
                path.unlink(missing_ok=True)


def is_checkpoint(path: Path) -> bool:
    """Whether a name is that of a checkpoint, or of one on its way."""
    return path.suffix == SUFFIX or is_part(path)


def _write(part: Part, state: Arrays) -> None:
    arrays = {name: _prepared(name, state[name]) for name in sorted(state)}
    header: dict[str, object] = {}
    offset = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    part.add(len(head).to_bytes(8, "little") + head)
    for array in arrays.values():
        data = array.reshape(-1).view(np.uint8).data
        for start in range(0, len(data), _PIECE):
            part.add(data[start : start + _PIECE])


def _prepared(name: str, value: Array) -> Array:
    array = np.asarray(value)
    if array.dtype.name not in _DTYPES:
        raise TypeError(f"state {name!r} is of type {array.dtype}; a checkpoint holds {', '.join(_DTYPES)}")
    # Not ascontiguousarray: it would make a number an array of one.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
