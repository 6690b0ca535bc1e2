"""Ports for those who have to name one."""

from __future__ import annotations

import contextlib
import random
import socket

_FIXED = range(20_000, 32_000)
"""Below those that Linux gives to who names none, so nobody else takes one before it is used."""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    for port in random.SystemRandom().sample(_FIXED, 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("a hundred ports are all taken")
