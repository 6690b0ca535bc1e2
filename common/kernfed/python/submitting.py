"""A job on its way to the coordinator: the files that it names are packed and uploaded, and its text is signed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kernfed.jobs.former import FILES
from kernfed.jobs.info import JobInfo
from kernfed.jobs.job_file import JobFile
from kernfed.jobs.named_files import attach_files
from kernfed.wire.operator_client import OperatorClient


async def submit_job(operator: OperatorClient, job: JobFile, text: str, folder: Path) -> JobInfo:
    """Upload the files that a job names, sign it, and have the coordinator check and queue it.

    Args:
        operator: Whose job it is.
        job: The job, parsed.
        text: Its file's text.
        folder: From which paths that it names are taken.

    Raises:
        DataError: A file that it names cannot be read, or does not fit.
        ConfigError: The job is wrong.
        KernfedError: The coordinator refuses it, or cannot be reached; by the error's own class.
    """
    with tempfile.TemporaryDirectory() as aside:
        former = await _former(operator, job, folder, Path(aside))
        _, text, files = attach_files(job, text, folder, former)
    for content in files.values():
        await operator.upload(content)
    return await operator.submit(text)


async def _former(operator: OperatorClient, job: JobFile, folder: Path, aside: Path) -> Path | None:
    """The artifacts of the job that `start_from` names: those of its folder, or of a job at the coordinator."""
    if not job.start_from or job.files or (folder / job.start_from).exists():
        return None
    await operator.fetch(job.start_from, aside, FILES)
    return aside
