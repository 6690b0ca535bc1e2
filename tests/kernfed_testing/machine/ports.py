"""Ports for those who have to name one."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

_FIRST, _SIZE, _BLOCKS = 20_000, 100, 120
"""Below the ports that Linux gives to who names none, so nobody else takes one before it is used."""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on, nor another process of tests names."""
    ports = _own_ports(os.getpid())
    for port in itertools.islice(ports, _SIZE):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError(f"all {_SIZE} ports of this process are taken")


@functools.cache
def _own_ports(_process: int) -> Iterator[int]:
    """The ports of a block that this process locks as long as it lives, one after the other, again and again."""
    folder = Path(tempfile.gettempdir(), f"kernfed-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    for block in range(_BLOCKS):
        descriptor = os.open(folder / str(block), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            first = _FIRST + block * _SIZE
            return itertools.cycle(range(first, first + _SIZE))
    raise AssertionError(f"{_BLOCKS} processes of tests name ports already")
