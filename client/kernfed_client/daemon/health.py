"""Whether the daemon is well: it says so in a file of its state folder, and a probe reads it.

The daemon listens on no port, so it cannot be asked. The file is written anew every few seconds by the same event loop
that serves the session, so a daemon that hangs, has stopped or cannot write to its disk shows by the file's age.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from kernfed import files
from kernfed.errors import UnavailableError

log = structlog.get_logger(__name__)

HEALTH_FILE = "health.json"
WRITE_INTERVAL_S = 5.0
STALE_S = 30.0
"""A daemon that has not written for so long is not well."""


def _nothing() -> str:
    return ""


async def keep_health_written(
    state: Path,
    connected: Callable[[], bool],
    line: Callable[[], str] = _nothing,
    streams: Callable[[], str] = _nothing,
    waits: Callable[[], str] = _nothing,
    revocations: Callable[[], str] = _nothing,
) -> None:
    """Write the file until cancelled; a disk that takes nothing is logged once, and tried again.

    Args:
        state: The daemon's state folder.
        connected: Whether there is a session now.
        line: What the daemon noticed about its line, for people; empty: nothing.
        streams: What was left out of its streams; empty: nothing.
        waits: What cannot go on, streams and steps for a full disk, and jobs that the policy refuses; empty: nothing.
        revocations: Why it is not known who was revoked lately; empty: it is.
    """
    failed = False
    while True:
        try:
            said: dict[str, bool | str] = {
                "connected": connected(),
                "line": line(),
                "streams": streams(),
                "waits": waits(),
                "revocations": revocations(),
            }
            _write(state / HEALTH_FILE, said)
            failed = False
        except OSError as err:
            if not failed:
                log.error("health not written", file=str(state / HEALTH_FILE), error=err.strerror)
            failed = True
        await asyncio.sleep(WRITE_INTERVAL_S)


def check_health(state: Path, *, now: Callable[[], float] = time.time) -> str:
    """Read what the daemon said last; return it as a line of text if all is well.

    Args:
        state: The daemon's state folder.
        now: Clock, in seconds since 1970.

    Raises:
        UnavailableError: The daemon does not run, hangs, cannot write its state, has no session, a stream or a step
            of it waits for the disk, or its policy refuses jobs since it is not known who was revoked lately.
    """
    path = state / HEALTH_FILE
    try:
        said = json.loads(path.read_text())
        age_s, connected = now() - float(said["at"]), bool(said["connected"])
    except OSError as err:
        raise UnavailableError(
            f"cannot read {path}: {err.strerror}; the daemon has not started with this client file"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UnavailableError(
            f"{path} is not what the daemon writes; it is written anew while the daemon runs"
        ) from None
    if age_s > STALE_S:
        raise UnavailableError(
            f"the daemon last gave a sign {age_s:.0f} s ago: it has stopped, hangs, or cannot write to {state}; "
            f"see its log and the free space there"
        )
    if not connected:
        raise UnavailableError("the daemon runs and has no session with the coordinator; run `kernfed-client doctor`")
    if waits := said.get("waits"):
        raise UnavailableError(str(waits))
    return "; ".join(["connected", *(str(said[key]) for key in ("line", "streams", "revocations") if said.get(key))])


def noticed_line(state: Path) -> str:
    """What the daemon of a state folder noticed about its line; empty where that is nothing, or it says nothing."""
    try:
        said = json.loads((state / HEALTH_FILE).read_text())
        return str(said.get("line", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _write(path: Path, said: Mapping[str, bool | str]) -> None:
    text = json.dumps({"at": time.time(), **said}) + "\n"
    try:
        files.replace(path, text.encode(), durable=False)  # it counts for seconds only
    except OSError:
        with path.open("r+b") as file:  # a full disk has space for what is there already
            file.write(text.encode())
            file.truncate()
