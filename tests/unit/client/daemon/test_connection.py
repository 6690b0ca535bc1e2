"""How long a client waits before it dials again, and when it ends a connection itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernfed.errors import CertificateError
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.wire.outgoing import Outgoing
from kernfed_client.daemon.connection import MIN_BACKOFF_S, Connection, backoff_s
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
