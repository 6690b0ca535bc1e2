"""A job that is over, as another one takes it over: what it had learned, and what it was, in one file of bytes.

`start_from` names the folder of its artifacts. What travels is made of them at submission; the coordinator checks it
again. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed.arrays import GREATEST, Array
from kernfed.artifact_names import CHECKPOINT, JOB_JSON
from kernfed.errors import ConfigError, DataError
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.plans import MOST_TOLD, differing_keys, parts_of
from kernfed.methods.base import Begins
from kernfed.methods.registry import METHODS, method_of

FORMAT: Final = "kernfed.former/1"
FILES: Final = (JOB_JSON, CHECKPOINT)
"""Artifacts that another job needs."""
_FACTS: Final = "former"
_REMEDY: Final = "fetch the job's artifacts again with `kernfed job fetch`"
_TABLES: Final = ("data", "features", "method")
_FREE_DATA: Final = (
    "classes",
    "missing",
    "ranges",
    "scales",
    "split",
    "test_fraction",
    "unseen_classes",
    "validation_fraction",
)
_OF_HEADS: Final = ("loss", "penalise_bias")
"""Keys of `[method]` that decide what weights mean."""
AGREEMENT: Final = "run.agreement."
"""Beginning of the names, in a checkpoint, of what the clients agreed on before round 1."""
WEIGHTS: Final = "weights"
"""Name of a global model's weights in the checkpoint of every method that has one."""
_MOST_ROUNDS: Final = 1 << 31
_UNREADABLE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What JSON raises that is no description of a job, and what making numbers of it does."""


@dataclass(frozen=True, slots=True)
class Former:
    """A job that is over."""

    job_id: str
    method: str
    round_num: int
    """Its last round."""
    plan: Mapping[str, Any]
    """What it asked for, as `JobFile.plan` has it."""
    arrays: Mapping[str, Array]
    """What it had learned: arrays of its last checkpoint."""

    def __post_init__(self) -> None:
        """Refuse what no job is.

        Raises:
            DataError: Id, rounds or plan are none.
        """
        plan: Any = self.plan
        tables = [plan.get(table, {}) for table in _TABLES] if isinstance(plan, dict) else [plan]
        fits = len(self.job_id) <= 256 and self.job_id.isprintable() and 0 <= self.round_num <= _MOST_ROUNDS
        if not fits or not all(isinstance(table, dict) for table in tables):
            raise DataError(f"start_from: made by a release of kernfed that this one does not know; {_REMEDY}")

    @property
    def origin(self) -> str:
        """Whose it is, for people."""
        return f"job {self.job_id}"

    def to_bytes(self) -> bytes:
        """As it travels; the same job gives the same bytes."""
        facts = {
            "format": FORMAT,
            "job_id": self.job_id,
            "method": self.method,
            "round_num": self.round_num,
            "plan": self.plan,
        }
        text = json.dumps(facts, sort_keys=True).encode()
        data: bytes = save({**self.arrays, _FACTS: np.frombuffer(text, np.uint8)})
        return data

    @classmethod
    def of_bytes(cls, content: bytes) -> Former:
        """What `to_bytes` gave.

        Raises:
            DataError: These are not such bytes, or hold numbers that are not finite.
        """
        try:
            arrays = load(content)
            facts = json.loads(arrays.pop(_FACTS).tobytes())
            known = facts["format"] == FORMAT
            former = cls(str(facts["job_id"]), str(facts["method"]), int(facts["round_num"]), facts["plan"], arrays)
        except (SafetensorError, *_UNREADABLE) as err:
            raise DataError(f"start_from: not what a job left ({type(err).__name__}); {_REMEDY}") from err
        if not known:
            raise DataError(f"start_from: made by a release of kernfed that this one does not know; {_REMEDY}")
        floats = {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
        if not all(np.isfinite(array).all() for array in floats.values()):
            raise DataError(f"start_from: {former.origin} left numbers that are not finite; begin anew")
        for name, array in sorted(floats.items()):
            # What the clients agreed on has rules of its own.
            if not name.startswith(AGREEMENT) and (np.abs(array) > GREATEST).any():
                raise DataError(f"start_from: {former.origin} left {name} beyond {GREATEST:g}; begin anew")
        if WEIGHTS in arrays and WEIGHTS not in floats:
            raise DataError(f"start_from: {former.origin} left weights that are no floats; begin anew")
        return former

    def refuse_other(self, job: JobFile) -> None:
        """Refuse to begin a job from this one where the two are of different kinds.

        Raises:
            ConfigError: Names what differs.
        """
        method = method_of(job.method)
        theirs = METHODS.get(self.method)
        model = method.begins is Begins.MODEL
        if theirs is None or theirs.begins is not method.begins or not (model or self.method == job.method.name):
            fitting = sorted(name for name, known in METHODS.items() if known.begins is Begins.MODEL)
            others = ", ".join(fitting) if model else "the same method"
            raise ConfigError(
                f"start_from: {self.origin} is of method {self.method}, and this job of {job.method.name}: what it "
                f"learned means nothing here; name one of {others}"
            )
        different = self._different(job, model=model)
        if different:
            raise ConfigError(
                f"start_from: {self.origin} differs from this job: {'; '.join(different[:MOST_TOLD])}. Columns, "
                "classes and the feature map are taken over from there: write these keys as that job has them"
            )
        rounds = method.rounds(job.method)
        if not model and rounds and rounds <= self.round_num:
            raise ConfigError(
                f"method.rounds = {rounds} counts the rounds of {self.origin} too, which ended behind round "
                f"{self.round_num}; give more, or 0 for no end"
            )

    def _different(self, job: JobFile, *, model: bool) -> list[str]:
        """Keys that must agree and do not: all but those of a job's progress, or those that give weights a meaning."""
        method, now = method_of(job.method), job.plan()
        if model:
            sections: tuple[dict[str, Any], ...] = (dict(self.plan.get("method", {})), dict(now.get("method", {})))
            free = {"data": _FREE_DATA, "method": tuple({*sections[0], *sections[1]} - {*_OF_HEADS})}
            return differing_keys(parts_of(self.plan, _TABLES, free), parts_of(now, _TABLES, free))
        free = {"method": method.progress}
        different = differing_keys(parts_of(self.plan, _TABLES, free), parts_of(now, _TABLES, free))
        if self.plan.get("seed") != now.get("seed"):
            different.insert(0, f"seed = {now.get('seed')!r} (there {self.plan.get('seed')!r})")
        return different


def former_of(job: JobFile, files: Mapping[str, bytes]) -> Former | None:
    """The job that a job begins from; None where it names none.

    Args:
        job: The job.
        files: Content of the files that it names.

    Raises:
        DataError: That is not what a job left.
        ConfigError: It is of another kind; names what differs.
    """
    if not job.start_from or method_of(job.method).begins is Begins.NOTHING:
        return None
    former = Former.of_bytes(files[job.start_from])
    if job.former is not None and job.former.job_id != former.job_id:
        raise ConfigError(
            f"[former] of the job says {job.former.job_id}, and start_from leads to {former.origin}; remove [files] "
            "and [former], which are written at submission"
        )
    former.refuse_other(job)
    return former


def read_former(path: Path, job: JobFile) -> Former:
    """A former job, from the folder of its artifacts, checked.

    Raises:
        DataError: There is no such folder, or it holds no state.
        ConfigError: The job is of another kind; names what differs.
    """
    try:
        record = json.loads((path / JOB_JSON).read_bytes())
        facts = str(record["job_id"]), str(record["method"]), int(record["rounds_closed"]), record["settings"]
    except (OSError, *_UNREADABLE) as err:
        raise DataError(
            f"{path}: no artifacts of a job are there; start_from names their folder, relative to the job file: "
            "`kernfed job fetch` writes it"
        ) from err
    try:
        arrays = load((path / CHECKPOINT).read_bytes())
    except (OSError, SafetensorError) as err:
        raise DataError(f"{path}: the job left no {CHECKPOINT} to go on from; {_REMEDY}") from err
    if method_of(job.method).begins is Begins.MODEL:
        arrays = {name: array for name, array in arrays.items() if name == WEIGHTS or name.startswith(AGREEMENT)}
    former = Former(*facts, arrays)
    former.refuse_other(job)
    return former
