"""How long a client waits before it dials again, and when it ends a connection itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import CertificateError, KernfedError, VersionMismatchError, WireError
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.wire.frames import MAX_HEARTBEAT_S, MAX_SILENCE_S, MAX_TEXT, PROTOCOL_VERSION
from kernfed.wire.outgoing import Outgoing
from kernfed_client.daemon.connection import MIN_BACKOFF_S, Connection, backoff_s, welcomed
from kernfed_client.daemon.idle_cuts import IdleCuts
from kernfed_testing.limits import LIMIT_S


@given(st.integers(0, 10**6), st.floats(0.01, 3600))
def test_backoff_is_bounded(attempt: int, longest: float) -> None:
    """The pause before another attempt grows with the attempts and stays within its bounds."""
    pause = backoff_s(attempt, longest)
    assert MIN_BACKOFF_S <= pause <= MIN_BACKOFF_S + min(longest, MIN_BACKOFF_S * 2 ** min(attempt, 30))


def test_backoff_grows_and_is_jittered() -> None:
    """Clients that lose the coordinator together do not come back together."""
    late = [backoff_s(20, 30.0) for _ in range(200)]
    assert max(late) > 20
    assert len({round(pause, 3) for pause in late}) > 150
    assert max(backoff_s(0, 30.0) for _ in range(200)) <= 2 * MIN_BACKOFF_S


async def test_a_line_outlives_no_certificate() -> None:
    """A client whose certificate has ended says nothing more on the line that it dialled with it."""
    left = [None, None, CertificateError("expired")]

    def check() -> None:
        if (end := left.pop(0)) is not None:
            raise end

    class _Idle:
        busy_task_ids = ()

    tasks: Any = _Idle()
    nothing: Any = None
    outgoing, welcome = Outgoing(), pb.Welcome()
    welcome.heartbeat_interval.FromMilliseconds(1)
    welcome.heartbeat_timeout.FromMilliseconds(60_000)
    connection = Connection(tasks, nothing, nothing, outgoing, welcome, IdleCuts(), check)
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(CertificateError, match="expired"):
            await connection.heartbeat()
    assert not left
    assert outgoing.backlog > 0


class _Said:
    """A coordinator's frames, one after the other."""

    def __init__(self, *frames: pb.ConnectResponse) -> None:
        self._left = [frame.SerializeToString() for frame in frames]

    async def read(self) -> bytes:
        return self._left.pop(0)


def on(stream: Any, welcome: pb.Welcome) -> Connection:
    tasks: Any = None
    ended: Any = None
    return Connection(tasks, stream, ended, Outgoing(), welcome, IdleCuts())


@pytest.mark.redteam
@pytest.mark.parametrize("seconds", [10**15, -(10**15), 0])
def test_a_coordinator_sets_no_absurd_times(seconds: int) -> None:
    """Heartbeats go on, and a silent coordinator is noticed, whatever the welcome says of both."""
    welcome = pb.Welcome()
    welcome.heartbeat_interval.seconds = welcome.heartbeat_timeout.seconds = seconds
    connection = on(_Said(), welcome)
    assert 0.05 <= connection._interval_s <= MAX_HEARTBEAT_S
    assert 0.1 <= connection._timeout_s <= MAX_SILENCE_S


@pytest.mark.redteam
@pytest.mark.parametrize("reason", ["UNAVAILABLE", "REVOKED", "R" * 1_000_000])
async def test_a_goodbye_of_megabytes_fills_no_log(reason: str) -> None:
    """What a coordinator says at the end is cut, for it is logged each time that the client dials."""
    goodbye = pb.ConnectResponse(goodbye=pb.Goodbye(reason=reason, message="no" * 1_000_000))
    with pytest.raises(Exception, match="no") as found:  # which class follows from the reason
        await on(_Said(goodbye), pb.Welcome()).read()
    assert len(str(found.value)) <= MAX_TEXT


@pytest.mark.redteam
@pytest.mark.parametrize(
    ("frame", "error", "says"),
    [
        (pb.ConnectResponse(), WireError, "not a welcome"),
        (pb.ConnectResponse(heartbeat=pb.Heartbeat()), WireError, "not a welcome"),
        (pb.ConnectResponse(welcome=pb.Welcome()), VersionMismatchError, "speaks protocol 0, .* matching releases"),
        (pb.ConnectResponse(welcome=pb.Welcome(protocol_version=2**32 - 1)), VersionMismatchError, "4294967295"),
        (
            pb.ConnectResponse(welcome=pb.Welcome(protocol_version=PROTOCOL_VERSION, client="c" * 300)),
            WireError,
            "not a welcome",
        ),
    ],
)
def test_what_is_no_welcome(frame: pb.ConnectResponse, error: type[KernfedError], says: str) -> None:
    """A first frame of another kind, of another protocol, or for a name that is none, opens no session."""
    with pytest.raises(error, match=says):
        welcomed(frame)
