"""A file is held by one process, which the next one is told of, and is free when that process is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed.process_lock import ProcessLock
from kernfed_testing.limits import LIMIT_S

HOLD = """
import sys, pathlib
from kernfed.process_lock import ProcessLock
lock = ProcessLock(pathlib.Path(sys.argv[1]), what="x is a folder", remedy="stop it")
print("held", flush=True)
sys.stdin.read()
"""


def lock(path: Path) -> ProcessLock:
    return ProcessLock(path, what="x is a folder", remedy="stop that one")


def test_the_second_is_refused(tmp_path: Path) -> None:
    """The error says what is held, by whom, and what to do; after `release` there is room."""
    first = lock(tmp_path / ".lock")
    with pytest.raises(ConfigError, match=rf"x is a folder, and process {os.getpid()} on .+ uses it; stop that one"):
        lock(tmp_path / ".lock")
    first.release()
    first.release()
    lock(tmp_path / ".lock").release()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    """Another process's lock holds here too, and ends with that process."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=rf"process {other.pid} on"):
            lock(tmp_path / ".lock")
        other.kill()
        other.wait(LIMIT_S)
        lock(tmp_path / ".lock").release()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A file that cannot be made is an error that names it."""
    with pytest.raises(ConfigError, match=r"nowhere/\.lock cannot be written"):
        lock(tmp_path / "nowhere" / ".lock")
