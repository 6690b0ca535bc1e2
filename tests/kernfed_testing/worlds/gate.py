"""A gate in front of a step: a test sees a client begin to compute, and says when it may go on."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from kernfed.federation.messages.base import Reply, Request
from kernfed_client.steps.registry import STEPS
from kernfed_testing.limits import LIMIT_S


class Gate:
    """Holds up one client's answers to one request, and counts every client's. Make it before the federation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, request: type[Request[Any]], client: str) -> None:
        """Put a gate in the table of steps; `client` stops there."""
        self._step = STEPS[request]
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._open = threading.Event()
        self.calls: Counter[str] = Counter()
        """Computations begun, by client."""
        self.reached = asyncio.Event()
        """The client stands before the gate."""
        monkeypatch.setitem(STEPS, request, self._pass)

    def open(self) -> None:
        """Let the client go on, from now on."""
        self._open.set()

    def _pass(self, job: Any, request: Request[Any]) -> Reply:
        self.calls[job.client] += 1
        if job.client == self._client and not self._open.is_set():
            self._loop.call_soon_threadsafe(self.reached.set)
            if not self._open.wait(LIMIT_S):
                raise AssertionError("the gate was never opened")
        return self._step(job, request)

    async def wait_reached(self) -> None:
        """Wait until the client stands before the gate."""
        async with asyncio.timeout(LIMIT_S):
            await self.reached.wait()
