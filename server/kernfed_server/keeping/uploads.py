"""Files that operators upload and jobs name by their SHA-256: written aside, checked, moved into place."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

from kernfed.errors import ConfigError, UnavailableError, WireError
from kernfed.files import Part
from kernfed.jobs.job_file import MAX_FILE_BYTES, JobFile, named_files
from kernfed_server.keeping.disk import opened

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Uploads:
    """The coordinator's store of uploaded files. A file is there whole, or not at all."""

    def __init__(self, folder: Path) -> None:
        """Take a folder; it is made with the first file."""
        self._folder = folder

    def check(self, job: JobFile) -> None:
        """Check that every file that a job names is here.

        Raises:
            ConfigError: One has no digest, or was not uploaded.
        """
        for name in named_files(job):
            digest = job.files.get(name)
            if digest is None:
                raise ConfigError(
                    f"job file: [files] lacks the SHA-256 of {name!r}; submit with `kernfed job submit`, which uploads "
                    "the file and adds it"
                )
            if not self.path(digest).is_file():
                raise ConfigError(
                    f"job file: {name!r} ({digest[:12]}…) is not at this coordinator; remove [files] from the job and "
                    "submit it with `kernfed job submit`, which uploads the file"
                )

    def path(self, sha256: str) -> Path:
        """Path of a file, if it is here.

        Raises:
            WireError: The text is no digest, so it must not become a path.
        """
        if not _DIGEST.fullmatch(sha256):
            raise WireError("upload: sha256 must be 64 hexadecimal digits")
        return self._folder / sha256

    def read(self, sha256: str) -> bytes:
        """Content of a file, checked against its digest. Blocks.

        Raises:
            ConfigError: It is gone or damaged.
        """
        try:
            content = self.path(sha256).read_bytes()
        except OSError as err:
            raise ConfigError(
                f"uploaded file {sha256[:12]}… cannot be read: {err.strerror}; submit the job again"
            ) from err
        if hashlib.sha256(content).hexdigest() != sha256:
            self.path(sha256).unlink(missing_ok=True)
            raise ConfigError(
                f"uploaded file {sha256[:12]}… was damaged on the disk and is removed; submit the job again"
            )
        return content

    async def receive(self, sha256: str, size: int, pieces: AsyncIterator[bytes]) -> bool:
        """Keep a file.

        Args:
            sha256: Of the whole.
            size: Of the whole, in bytes.
            pieces: Its content; not read where the file is here.

        Returns:
            Whether it was here before.

        Raises:
            WireError: What arrives is not what was announced.
            UnavailableError: The disk cannot take it.
        """
        path = self.path(sha256)
        if not 1 <= size <= MAX_FILE_BYTES:
            raise WireError(f"upload: {size} bytes announced; a file has 1 to {MAX_FILE_BYTES}")
        if await asyncio.to_thread(_touch, path):
            return True
        try:
            async with opened(lambda: self._begin(path)) as part:
                received = 0
                async for piece in pieces:
                    received += len(piece)
                    if received > size:
                        raise WireError("upload: more bytes than announced")
                    await asyncio.to_thread(part.add, piece)
                if received != size or part.digest.hexdigest() != sha256:
                    raise WireError("upload: what arrived is not what was announced; send it again")
                await asyncio.to_thread(part.keep, durable=True)
        except OSError as err:
            raise UnavailableError(f"upload: the coordinator cannot write: {err.strerror}; tell its operator") from err
        return False

    def _begin(self, path: Path) -> Part:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Part(path, mode=0o600)


def _touch(path: Path) -> bool:
    """Make a file that is here new again, so that it outlives `kernfed-coordinator gc` until its job is submitted."""
    with contextlib.suppress(OSError):  # not here, or not to be written: found out below
        os.utime(path)
    return path.is_file()
