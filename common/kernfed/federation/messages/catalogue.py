"""Every module of messages there is: those that all methods share, and those in the methods' rooms."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from kernfed.federation.messages import data, evaluation
from kernfed.methods import rooms


def message_modules() -> Iterator[ModuleType]:
    """Import and hand over the shared modules of messages, then each room's, whose names end in `messages`."""
    yield from (data, evaluation)
    yield from rooms.modules("kernfed.methods", "messages")
