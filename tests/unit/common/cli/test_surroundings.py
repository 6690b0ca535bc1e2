"""What is wrong around a command is told as what it is, in one line, with a remedy."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from kernfed.cli.surroundings import fault_of_surroundings
from kernfed_testing.limits import LIMIT_S

_VERSION = "import sys; sys.argv[1:] = ['--version']; from kernfed.cli.main import main; main()"
_CLOSED = f"import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-c', {_VERSION!r}])"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "/state/audit.jsonl: its file system is read-only"),
        (errno.EACCES, "/state/audit.jsonl: this user may not"),
        (errno.ENOSPC, "/state/audit.jsonl: No space left on device; make space there"),
        (errno.EMFILE, "/state/audit.jsonl: this process may open no more files: raise `ulimit -n`"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_a_remedy(number: int, words: str) -> None:
    """Each has its own sentence, and none is called a fault in kernfed."""
    told = fault_of_surroundings(OSError(number, os.strerror(number), "/state/audit.jsonl"))
    assert told is not None
    assert str(told).startswith(words)
    assert told.exit_code == 4


def test_too_little_memory_is_told() -> None:
    """Whether Python finds it, or the loader of a library."""
    for err in (MemoryError(), ImportError("libtorch_cpu.so: failed to map segment from shared object")):
        assert "may have no more memory" in str(fault_of_surroundings(err))


def test_what_may_be_our_own_fault_stays_one() -> None:
    """A file that should be there and is not, and a wrong type, are not the surroundings'."""
    assert fault_of_surroundings(FileNotFoundError(errno.ENOENT, "no such file", "x")) is None
    assert fault_of_surroundings(TypeError("x")) is None


@pytest.mark.slow
@pytest.mark.parametrize("how", ["full", "closed"])
def test_an_output_that_takes_nothing_is_told(how: str) -> None:
    """A command whose result is lost ends with a line that says so, not with status 0 and not with a traceback."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-c", _VERSION if how == "full" else _CLOSED]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith("error: standard output cannot be written: ")
    assert len(done.stderr.splitlines()) == 1
