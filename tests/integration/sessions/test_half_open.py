"""Strangers who connect and say nothing hold no descriptors for long, and keep nobody from being revoked."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from pathlib import Path

import pytest

from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S

SPARE = 40
"""Descriptors that the coordinator may open beside those that it has."""


@pytest.mark.redteam
async def test_a_client_is_revoked_while_strangers_hold_all_descriptors(tmp_path: Path) -> None:
    """A coordinator without a free descriptor cuts the revoked client's session; then strangers are shut out."""
    async with Federation(tmp_path, ["a"], processes=True) as fed:
        await fed.clients["a"].saw("session open")
        files = Path(f"/proc/{fed.coordinator.pid}/fd")
        most = len(list(files.iterdir())) + SPARE
        # Of the whole process: as if `ulimit -n` had been so low, and nothing could raise it.
        resource.prlimit(fed.coordinator.pid, resource.RLIMIT_NOFILE, (most, most))
        with contextlib.ExitStack() as strangers:
            for number in range(2 * SPARE):
                stranger = strangers.enter_context(socket.socket())
                stranger.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    stranger.connect(("127.0.0.1", (fed.ports.federation, fed.ports.enrolment)[number % 2]))
            async with asyncio.timeout(LIMIT_S):
                while len(list(files.iterdir())) < most:
                    await asyncio.sleep(0.01)
            fed.identities.pki.revoke("client/a")
            cut = await fed.coordinator.saw("session cut", client="a", reason="REVOKED")
            assert cut["client"] == "a"
            async with asyncio.timeout(LIMIT_S):
                while len(list(files.iterdir())) >= most - SPARE // 2:
                    await asyncio.sleep(0.1)
        assert files.exists()
