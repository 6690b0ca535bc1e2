"""The content of the data that a job was prepared on: other content under the same job is refused, not trained on.

A daemon that starts again reads its files again. Factors, weights and the sums of all clients stand for the rows that
were there before, so a job that went on with other rows would leave a model of neither.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from kernfed import files
from kernfed.arrays import Floats
from kernfed.errors import DataError
from kernfed_client.data.guards.split import FIRST_RULES, RULES
from kernfed_client.data.reading.partition_data import PartitionData
from kernfed_client.data.reading.partitions import LocalData

_NAME = "content"


def digest(data: LocalData) -> str:
    """SHA-256 of the rows to train and test on, in their order, and of their targets."""
    found = hashlib.sha256()
    for part in (data.train, data.test):
        _add(found, part)
    return found.hexdigest()


def is_begun(folder: Path) -> bool:
    """Whether a job's folder knows that the job was prepared here; a release before kept no data of some jobs."""
    return (folder / _NAME).exists() or next(folder.glob("*.task"), None) is not None


def rules(folder: Path) -> int:
    """By which of `guards.split.RULES` the job was prepared here; the newest for one that was not."""
    try:
        number = (folder / _NAME).read_text().partition(" ")[2]
    except FileNotFoundError:
        return FIRST_RULES if is_begun(folder) else RULES
    return min(int(number), RULES) if number.isdecimal() else FIRST_RULES


def check(folder: Path, data: LocalData, dataset: str, *, may_differ: bool = False) -> None:
    """Keep the digest of the data in a job's folder, or compare it with the one that is kept there.

    Args:
        folder: The job's.
        data: As read.
        dataset: Its name.
        may_differ: Whether other content than before is no fault.

    Raises:
        DataError: The job was prepared on other content.
    """
    number = rules(folder)
    own = digest(data) if number == FIRST_RULES else f"{digest(data)} {number}"
    if not may_differ or not (folder / _NAME).exists():
        _keep_or_compare(folder / _NAME, own, f"data set {dataset}: its")


def check_unlabelled(folder: Path, x: Floats, dataset: str) -> None:
    """The same of the rows of an unlabelled partition, (m, P), which a job reads when it first needs them.

    Raises:
        DataError: The job read other rows before.
    """
    found = hashlib.sha256()
    _add_rows(found, x)
    _keep_or_compare(folder / f"{_NAME}-unlabelled", found.hexdigest(), f"data set {dataset}: its unlabelled")


def _keep_or_compare(path: Path, own: str, whose: str) -> None:
    try:
        known = path.read_text()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, own.encode(), durable=False)
        return
    if known != own:
        raise DataError(
            f"{whose} rows are not those with which this job was prepared, so the job cannot go on with them: a "
            "file or the client file changed since, or this release leaves out other rows than the one before; put "
            "the former files back and start the client again, or cancel the job and submit it anew"
        )


def _add(found: Any, part: PartitionData) -> None:
    _add_rows(found, part.x)
    if part.y is not None:
        found.update(np.ascontiguousarray(part.y).data)
    found.update("\0".join(part.labels or ()).encode())


def _add_rows(found: Any, x: Floats) -> None:
    found.update(f"{x.shape}\n".encode())
    found.update(np.ascontiguousarray(x).data)
