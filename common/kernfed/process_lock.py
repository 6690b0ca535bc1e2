"""A file that one process holds while it runs, so that no second one writes into what the file stands for."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Final

from kernfed.errors import ConfigError

LOCK_FILE: Final = ".lock"
"""Of a folder that is held as a whole."""


def this_process() -> str:
    """Name of this process, for whoever is refused because of it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class ProcessLock:
    """Holds a file from now until `release`, or until the process ends in whatever way."""

    def __init__(self, path: Path, *, what: str, remedy: str) -> None:
        """Take the file; it is made where it does not exist, and never removed.

        Args:
            path: The file; its folder exists.
            what: What it stands for, for the error, e.g. "/data is the data folder of a coordinator".
            remedy: What to do when another process holds it.

        Raises:
            ConfigError: Another process holds it (names it), or the file cannot be written.
        """
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as err:
            raise ConfigError(f"{path} cannot be written: {err.strerror}; the folder must be this user's") from err
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(self._file, 0)
            os.pwrite(self._file, f"{this_process()}\n".encode(), 0)
        except BlockingIOError as err:
            holder = os.pread(self._file, 512, 0).decode(errors="replace").strip() or "another process"
            self.release()
            raise ConfigError(f"{what}, and {holder} uses it; {remedy}") from err
        except OSError:
            pass  # a full disk cannot tell who holds it, or a file system knows no locks: as before there were any

    def release(self) -> None:
        """Let others have it; twice does no harm."""
        if self._file is not None:
            os.close(self._file)  # which unlocks it; the file stays, for a removed one would let two in
            self._file = None
