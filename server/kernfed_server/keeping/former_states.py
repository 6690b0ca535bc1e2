"""Whether what a job begins from is what an earlier job of this coordinator left, and not made up by its operator.

Sums over a client's rows are told at the weights, and on the scales, of such a state. Whoever may choose these at will
sets a threshold between two rows, so that two jobs differ by one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from kernfed.arrays import Array
from kernfed.errors import ConfigError, KernfedError
from kernfed.jobs.former import Former, former_of, read_former
from kernfed.jobs.job_file import JobFile
from kernfed.methods.registry import method_of


def refuse_made_up(job: JobFile, read: Callable[[str], bytes], jobs: Path) -> None:
    """Refuse a job that begins from something else than what a job of this coordinator left. Blocks.

    Args:
        job: As it was submitted; its files are here.
        read: Content of a file by its SHA-256.
        jobs: Folder with a folder for each job, which has `artifacts`.

    Raises:
        ConfigError: The state is not one of those here; names the remedies.
        KernfedError: It cannot be read, or does not fit the job.
    """
    method = method_of(job.method)
    named = method.files(job.method) if method.kept else ()
    if job.start_from:
        former = former_of(job, {job.start_from: read(job.files[job.start_from])})
        if former is not None and not _left(former, job, jobs):
            raise ConfigError(_text("start_from", former.origin))
    for name in named:
        content = read(job.files[name])
        sha256 = hashlib.sha256(content).digest()
        kept = (path for path in jobs.glob(f"*/artifacts/{method.kept}") if path.stat().st_size == len(content))
        if not any(hashlib.sha256(path.read_bytes()).digest() == sha256 for path in kept):
            raise ConfigError(_text(f"{name!r} of [method]", "the job that it names"))


def _left(former: Former, job: JobFile, jobs: Path) -> bool:
    """Whether the job that a state says it is of left just this."""
    folder = next((path for path in jobs.iterdir() if path.name == former.job_id), None) if jobs.is_dir() else None
    if folder is None:
        return False
    try:
        left = read_former(folder / "artifacts", job)
    except KernfedError:
        return False
    return left.round_num == former.round_num and _same(left.arrays, former.arrays)


def _same(these: Mapping[str, Array], those: Mapping[str, Array]) -> bool:
    if these.keys() != those.keys():
        return False
    return all(
        a.dtype == those[name].dtype and a.shape == those[name].shape and np.array_equal(a, those[name])
        for name, a in these.items()
    )


def _text(key: str, origin: str) -> str:
    return (
        f"{key}: this is not what {origin} left at this coordinator, and weights and scales of one's own choice would "
        "tell of single rows; fetch the artifacts again with `kernfed job fetch`, or have the coordinator's "
        "administrator set foreign_states = true, where such a job is of another coordinator or a simulation"
    )
