"""Every module of messages there is: those that all methods share, and those in the methods' rooms."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from kernfed.federation.messages import choosing, data, evaluation, sums
from kernfed.federation.messages.base import Request, requests_in
from kernfed.methods import rooms


def message_modules() -> Iterator[ModuleType]:
    """Import and hand over the shared modules of messages, then each room's, whose names end in `messages`."""
    yield from (data, evaluation, choosing, sums)
    yield from rooms.modules("kernfed.methods", "messages")


def request_classes() -> Iterator[type[Request[Any]]]:
    """Hand over every request, module by module."""
    yield from requests_in(*message_modules())
