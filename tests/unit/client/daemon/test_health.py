"""The client's sign of life."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from kernfed.errors import UnavailableError
from kernfed_client.daemon import health
from kernfed_testing.limits import LIMIT_S


async def written(state: Path, connected: bool) -> None:
    """Let the daemon's loop write once."""
    task = asyncio.ensure_future(health.keep_health_written(state, lambda: connected))
    async with asyncio.timeout(LIMIT_S):
        while not (state / health.HEALTH_FILE).exists():
            await asyncio.sleep(0.01)
    task.cancel()


async def test_connected_daemon_is_well(tmp_path: Path) -> None:
    """What the daemon writes with a session reads as well."""
    await written(tmp_path, connected=True)
    assert health.check_health(tmp_path) == "connected"


async def test_daemon_without_session_is_not_well(tmp_path: Path) -> None:
    """A daemon that runs and has no session says what to run next."""
    await written(tmp_path, connected=False)
    with pytest.raises(UnavailableError, match=r"no session.*doctor"):
        health.check_health(tmp_path)


async def test_a_stream_that_waits_for_disk_is_not_well(tmp_path: Path) -> None:
    """The reason is the text of the error; what was left out of a stream is told of one that is well."""
    health_file = tmp_path / health.HEALTH_FILE
    waits = "the stream of default waits for disk: No space left"

    async def write() -> None:
        health_file.unlink(missing_ok=True)
        made = health.keep_health_written(tmp_path, lambda: True, streams=lambda: "rows left out", waits=lambda: waits)
        task = asyncio.ensure_future(made)
        async with asyncio.timeout(LIMIT_S):
            while not health_file.exists():
                await asyncio.sleep(0.01)
        task.cancel()

    await write()
    with pytest.raises(UnavailableError, match="waits for disk: No space left"):
        health.check_health(tmp_path)
    waits = ""
    await write()
    assert health.check_health(tmp_path) == "connected; rows left out"


async def test_a_client_that_does_not_know_who_was_revoked_says_so(tmp_path: Path) -> None:
    """It is well, for its policy lets it work on."""
    made = health.keep_health_written(tmp_path, lambda: True, revocations=lambda: "no list of revoked operators")
    task = asyncio.ensure_future(made)
    async with asyncio.timeout(LIMIT_S):
        while not (tmp_path / health.HEALTH_FILE).exists():
            await asyncio.sleep(0.01)
    task.cancel()
    assert health.check_health(tmp_path) == "connected; no list of revoked operators"


async def test_a_full_disk_does_not_hide_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no new file can be made the one that is there is written over."""
    await written(tmp_path, connected=True)
    path = tmp_path / health.HEALTH_FILE
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kernfed.files.replace", full)
    task = asyncio.ensure_future(health.keep_health_written(tmp_path, lambda: True, waits=lambda: "it waits for disk"))
    async with asyncio.timeout(LIMIT_S):
        while path.read_bytes() == before:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(UnavailableError, match="it waits for disk"):
        health.check_health(tmp_path)


async def test_silent_daemon_is_not_well(tmp_path: Path) -> None:
    """A sign older than the limit means stopped, hanging or a full disk, whatever it said."""
    await written(tmp_path, connected=True)
    later = json.loads((tmp_path / health.HEALTH_FILE).read_text())["at"] + health.STALE_S + 1
    with pytest.raises(UnavailableError, match=r"sign 3\d s ago"):
        health.check_health(tmp_path, now=lambda: later)


def test_daemon_that_never_started_is_not_well(tmp_path: Path) -> None:
    """Without the file the daemon has not started."""
    with pytest.raises(UnavailableError, match="has not started"):
        health.check_health(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"at": "noon", "connected": true}', '{"at": null}'])
def test_damaged_file_is_not_well(tmp_path: Path, text: str) -> None:
    """A file with something else in it is an error of its own, not a traceback."""
    (tmp_path / health.HEALTH_FILE).write_text(text)
    with pytest.raises(UnavailableError, match="not what the daemon writes"):
        health.check_health(tmp_path)


async def test_full_disk_does_not_end_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing is tried again after a failure, and the file is right once the disk takes it."""
    monkeypatch.setattr(health, "WRITE_INTERVAL_S", 0.01)
    state = tmp_path / "state"  # not there yet: the write fails
    task = asyncio.ensure_future(health.keep_health_written(state, lambda: True))
    await asyncio.sleep(0.05)
    assert not task.done()
    state.mkdir()
    async with asyncio.timeout(LIMIT_S):
        while not (state / health.HEALTH_FILE).exists():
            await asyncio.sleep(0.01)
    task.cancel()
    assert json.loads((state / health.HEALTH_FILE).read_text())["connected"] is True
