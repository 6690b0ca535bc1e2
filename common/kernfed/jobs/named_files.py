"""Files that a job names beside itself: read and packed at submission, and known by their SHA-256 from then on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from kernfed.columns.agree import open_plans
from kernfed.columns.expand import expand
from kernfed.columns.plan import ColumnPlan, columns_of, feature_names
from kernfed.errors import ConfigError, DataError
from kernfed.jobs.client_file import PartitionFile, format_by_suffix
from kernfed.jobs.former import read_former
from kernfed.jobs.job_file import MAX_FILE_BYTES, JobFile, named_files, parse_job
from kernfed.methods.registry import method_of
from kernfed.tables.raw_table import Source
from kernfed.wording import listed


def attach_files(
    job: JobFile, text: str, folder: Path, former: Path | None = None
) -> tuple[JobFile, str, Mapping[str, bytes]]:
    """Read the files that a job names, and write their digests into its text.

    Args:
        job: The job, parsed.
        text: Its file's text.
        folder: From which relative paths are taken.
        former: Folder of the job that `start_from` names, where that is no path.

    Returns:
        The job and its text with `[files]` and `[former]`, and the packed files by SHA-256. A job that has its digests
        already, such as the `job.toml` of an earlier one, comes back as it is; of its files, those that are here.

    Raises:
        DataError: A file cannot be read or does not fit the job.
        ConfigError: `[files]` lacks a file, or one has changed since.
    """
    names = named_files(job)
    if not names:
        return job, text, {}
    if job.files:
        return job, text, _files_again(job, names, folder)
    packed: dict[str, bytes] = {}
    lines = ["", "# Written when the job was submitted: SHA-256 of the files that it names.", "[files]"]
    went_before: list[str] = []
    for name in names:
        path = folder / name
        if name == job.start_from:
            path = former or path
            went_before = ["", "[former]", f"job_id = {json.dumps(read_former(path, job).job_id)}"]
        content = _packed(job, name, path)
        packed[_sha256(content)] = content
        lines.append(f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(_sha256(content))}")
    whole = text.rstrip("\n") + "\n" + "\n".join([*lines, *went_before]) + "\n"
    return parse_job(whole), whole, packed


def _files_again(job: JobFile, names: tuple[str, ...], folder: Path) -> Mapping[str, bytes]:
    packed: dict[str, bytes] = {}
    for name in names:
        if name not in job.files:
            raise ConfigError(f"job file: [files] lacks {name!r}; remove the section, it is written at submission")
        if not (folder / name).exists():
            continue  # the coordinator may have it
        content = _packed(job, name, folder / name)
        if _sha256(content) != job.files[name]:
            raise ConfigError(
                f"{folder / name} is not the file that [files] of the job names by its SHA-256; remove the section to "
                "run on the file as it is now"
            )
        packed[_sha256(content)] = content
    return packed


def _packed(job: JobFile, name: str, path: Path) -> bytes:
    assert job.data is not None  # noqa: S101  # methods that name files have data
    if name == job.start_from:
        content = read_former(path, job).to_bytes()
    elif job.data.plans and not method_of(job.method).kept:
        content = _packed_typed(job, name, path, job.data.plans)
    else:
        content = method_of(job.method).pack(path, tuple(job.data.features))
    if len(content) > MAX_FILE_BYTES:
        raise DataError(f"{path}: {len(content)} bytes once packed, more than {MAX_FILE_BYTES}; use fewer points")
    return content


def _packed_typed(job: JobFile, name: str, path: Path, plans: tuple[ColumnPlan, ...]) -> bytes:
    """A table whose columns have types, packed as the table of feature columns that follows."""
    if asked := open_plans(plans):
        raise DataError(
            f"{name}: is read when the job is submitted, before its clients agree on levels and means of column "
            f"{listed([plan.name for plan in asked])}; give the levels in data.columns, and fill no gaps there"
        )
    from kernfed.tables.read import read, refuse_gaps  # noqa: PLC0415  # the coordinator's image has no pyarrow
    from kernfed.tables.typed_cells import cell_readers  # noqa: PLC0415

    columns, names = columns_of(plans, ()), feature_names(plans)
    file = PartitionFile(path=path, format=format_by_suffix(path) or "csv")
    source = Source(file, str(path), columns, readers=cell_readers(plans, file, columns, lambda _: None))
    table = refuse_gaps(source, read(source), "points must be complete: correct it or leave the row out")
    with TemporaryDirectory() as folder:
        made = Path(folder) / f"{path.stem}.npz"
        np.savez(made, x=expand(plans, table.x), columns=np.array(names))
        return method_of(job.method).pack(made, names)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
