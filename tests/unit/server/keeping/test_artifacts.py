"""The report's process, and files read in pieces: each is ended or closed by whoever began it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernfed_server.keeping.artifacts import PIECE_BYTES, read_pieces, render_report, without_report
from kernfed_server.keeping.disk import opened
from kernfed_testing.limits import LIMIT_S


@pytest.mark.parametrize("started", [False, True])
async def test_no_process_outlives_a_report_that_nobody_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    """Whoever stops waiting, before the process has started or after, finds it killed and reaped."""
    processes: list[subprocess.Popen[bytes]] = []
    has_started, may_start = asyncio.Event(), threading.Event()
    loop, popen = asyncio.get_running_loop(), subprocess.Popen

    def endless(_command: object, **options: object) -> subprocess.Popen[bytes]:
        assert started or may_start.wait(LIMIT_S)
        processes.append(popen([sys.executable, "-c", "import signal; signal.pause()"], **options))  # type: ignore[call-overload]  # passed on as they came
        loop.call_soon_threadsafe(has_started.set)
        return processes[0]

    monkeypatch.setattr(subprocess, "Popen", endless)
    rendering = asyncio.ensure_future(render_report(tmp_path, tmp_path, 60))
    await (has_started.wait() if started else asyncio.sleep(0))
    rendering.cancel()
    await asyncio.sleep(0)
    may_start.set()
    with pytest.raises(asyncio.CancelledError):
        await rendering
    assert [process.returncode for process in processes] == [-signal.SIGKILL]


def test_the_reason_why_there_is_no_report(tmp_path: Path) -> None:
    """An operator reads the last line of what went wrong, without the coordinator's folders, and the remedy."""
    trace = f'Traceback:\n  File "page.py"\nOSError: cannot read {tmp_path}/metrics.jsonl\x1b[2J\n'
    said = without_report(trace, tmp_path)
    assert said.startswith(
        "report.html could not be written (OSError: cannot read metrics.jsonl\ufffd[2J); `kernfed report"
    )
    assert "(no report after 60 s)" in without_report("no report after 60 s", tmp_path)
    assert len(without_report("x" * 5000, tmp_path)) < 500


async def test_a_report_whose_process_ends_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed, as for want of memory, left no report, whatever it did not say."""
    popen = subprocess.Popen

    def killed(_command: object, **options: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"]
        process: subprocess.Popen[bytes] = popen(command, **options)  # type: ignore[call-overload]  # as they came
        return process

    monkeypatch.setattr(subprocess, "Popen", killed)
    assert await render_report(tmp_path, tmp_path, 60) == "its process ended with status -9"


async def test_a_file_that_is_not_read_to_its_end_is_closed(tmp_path: Path) -> None:
    """Closing the generator closes the file; what it gave by then was the file's beginning."""
    path = tmp_path / "large"
    path.write_bytes(b"x" * (PIECE_BYTES + 1))
    pieces = read_pieces(path)
    assert await anext(pieces) == b"x" * PIECE_BYTES
    assert str(path) in {file.path for file in psutil.Process().open_files()}
    await pieces.aclose()
    assert str(path) not in {file.path for file in psutil.Process().open_files()}


async def test_a_file_that_opens_too_late_is_closed(tmp_path: Path) -> None:
    """Who is cancelled while a thread opens a file never sees it, and it does not stay open."""
    begun, may_open, files = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def slowly() -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert may_open.wait(LIMIT_S)
        files.append((tmp_path / "file").open("wb"))
        loop.call_soon_threadsafe(has_opened.set)
        return files[0]

    async def use() -> None:
        async with opened(slowly):
            raise AssertionError("it was cancelled before")

    has_opened = asyncio.Event()
    using = asyncio.ensure_future(use())
    await begun.wait()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    may_open.set()
    await has_opened.wait()
    async with asyncio.timeout(LIMIT_S):
        while not files[0].closed:  # by a callback of the thread's future
            await asyncio.sleep(0)
