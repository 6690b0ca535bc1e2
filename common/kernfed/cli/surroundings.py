"""Faults of what a command runs in, told as what they are: a disk, an output, too little memory."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from kernfed.errors import DiskFullError, KernfedError, UnavailableError
from kernfed.files import is_full

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_REMEDIES: Final = {
    errno.EROFS: "its file system is read-only: mount it for writing, or choose another place",
    errno.EACCES: "this user may not: change the owner or the mode, or choose another place",
    errno.EPERM: "this user may not: change the owner or the mode, or choose another place",
    errno.EMFILE: "this process may open no more files: raise `ulimit -n` (systemd: LimitNOFILE=)",
    errno.ENFILE: "this machine can open no more files",
    errno.EIO: "its disk does not read or write: look at the system's log",
    errno.ESTALE: "its file server lost it: mount it anew",
    errno.EFBIG: "it may not grow that large: raise `ulimit -f`",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder, where a file is needed",
}
_OUTPUT: Final = "standard output"
_MEMORY: Final = (
    "this process may have no more memory: raise `ulimit -v` (systemd: MemoryMax=, containers: their limit), or use a "
    "machine with more"
)
_MEMORY_TEXTS: Final = ("failed to map segment", "Cannot allocate memory", "cannot allocate memory")


class _NamedOutput(io.FileIO):
    """Standard output, which Python's own errors do not name."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as err:
            err.filename = _OUTPUT
            raise


class _ClosedOutput(io.TextIOBase):
    """In place of a standard output that was closed before the start: what is written there is an error."""

    def write(self, _text: str) -> NoReturn:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), _OUTPUT)


def name_output() -> None:
    """Let an error of standard output name it, also where that was closed; a closed standard error takes all."""
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    elif sys.stdout is sys.__stdout__ and isinstance(out := sys.stdout, io.TextIOWrapper):
        raw = _NamedOutput(out.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding=out.encoding, errors=out.errors, line_buffering=out.line_buffering
        )
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # as long as the process


def fault_of_surroundings(err: BaseException) -> KernfedError | None:
    """What an error that nobody raised on purpose says of the surroundings; None: it may be a fault in kernfed."""
    if isinstance(err, MemoryError) or (
        isinstance(err, ImportError | OSError | RuntimeError) and any(text in str(err) for text in _MEMORY_TEXTS)
    ):
        return UnavailableError(_MEMORY)
    if not isinstance(err, OSError):
        return None
    if err.filename == _OUTPUT:
        return UnavailableError(f"{_OUTPUT} cannot be written: {err.strerror}; the result is not whole")
    where = err.filename or "a file"
    if is_full(err):
        return DiskFullError(f"{where}: {err.strerror}; make space there")
    if err.errno in _REMEDIES:
        return UnavailableError(f"{where}: {_REMEDIES[err.errno]}")
    return None


def give_up_output() -> None:
    """Keep Python from writing at its end what standard output did not take."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:  # there is none
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # as long as the process
