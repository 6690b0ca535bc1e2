"""Every module of messages there is: those that all methods share, and those in the methods' rooms."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Self

from kernfed.errors import ConfigError
from kernfed.federation.messages import choosing, data, evaluation, sums
from kernfed.federation.messages.base import Request, requests_in
from kernfed.federation.messages.later_fields import stated_fields
from kernfed.methods import rooms

_SHARED = (data, evaluation, choosing, sums)


def message_modules() -> Iterator[ModuleType]:
    """Import and hand over the shared modules of messages, then each room's, whose names end in `messages`."""
    yield from _SHARED
    yield from rooms.modules(rooms.HOME, "messages")


def request_classes() -> Iterator[type[Request[Any]]]:
    """Hand over every request, module by module."""
    yield from requests_in(*message_modules())


class Requests(Mapping[str, type[Request[Any]]]):
    """Requests by the wire names of their steps; messages of a room are loaded when one of its steps is asked for."""

    def __init__(self, classes: Iterable[type[Request[Any]]]) -> None:
        """Take requests that are loaded."""
        self._loaded = {request.step: request for request in classes}
        self._homes: dict[str, str] = {}
        self._fields = stated_fields(self._loaded.values())

    @classmethod
    def of_all_rooms(cls) -> Self:
        """Every request there is, as the indexes of the rooms say; those of rooms without one are loaded.

        Raises:
            ConfigError: A room from outside cannot be loaded.
        """
        ours = [(room, index) for room in rooms.rooms(rooms.HOME) if (index := room.index) is not None]
        others = [room for room in rooms.rooms(rooms.HOME) if room.index is None]
        found = cls(requests_in(*_SHARED, *(module for room in others for module in room.modules("messages"))))
        for room, index in ours:
            found._homes |= {step: f"{room.name}.{module}" for step, module in index.STEPS.items()}
            found._fields += index.FIELDS
        return found

    @property
    def later_fields(self) -> list[str]:
        """Fields of these requests that releases before may not know, sorted."""
        return sorted(self._fields)

    def __getitem__(self, step: str) -> type[Request[Any]]:
        if step not in self._loaded:
            home = self._homes[step]
            self._loaded = {r.step: r for r in requests_in(importlib.import_module(home))} | self._loaded
            if step not in self._loaded:
                raise ConfigError(f"{home} has no step {step!r}, which the index of its room names; run `make docs`")
        return self._loaded[step]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._loaded, **self._homes})

    def __len__(self) -> int:
        return len({**self._loaded, **self._homes})

    def __contains__(self, step: object) -> bool:
        return step in self._loaded or step in self._homes
