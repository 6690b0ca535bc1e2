"""How a method is found: each room has modules of the same names, and packages from outside are entry points.

A room is a package inside `kernfed.methods`, `kernfed_server.methods`, `kernfed_client.methods` or
`kernfed_simulation.methods`. Who wants all methods' halves asks for one attribute of one module of each room, so a new
method adds folders and no line elsewhere, and without its folders the rest still runs. A package outside the project
names a room of its own under an entry point of the group with the same name, e.g. `kernfed_server.methods`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from kernfed.errors import ConfigError


def modules(floor: str, *endings: str) -> Iterator[ModuleType]:
    """Import and hand over the modules of every room of a floor whose names end in one of the words, in a fixed order.

    Args:
        floor: The package that holds the rooms, e.g. `kernfed_client.methods`.
        endings: Of the modules' names, e.g. `steps`.
    """
    for room in _rooms(floor):
        inside = importlib.import_module(room).__path__
        for found in pkgutil.iter_modules(inside, f"{room}."):
            if found.name.endswith(endings):
                yield importlib.import_module(found.name)


def merged(floor: str, ending: str, attribute: str) -> dict[Any, Any]:
    """One table from the tables that the rooms have under a name.

    Args:
        floor: The package that holds the rooms.
        ending: Of the modules' names.
        attribute: A dict in each of these modules.

    Raises:
        ConfigError: Two rooms have the same key.
    """
    table: dict[Any, Any] = {}
    for module in modules(floor, ending):
        part = getattr(module, attribute)
        if twice := sorted(str(key) for key in part if key in table):
            raise ConfigError(f"{module.__name__}: {twice[0]} is there already; remove one of the two packages")
        table |= part
    return table


@functools.cache
def _rooms(floor: str) -> tuple[str, ...]:
    own = [r.name for r in pkgutil.iter_modules(importlib.import_module(floor).__path__, f"{floor}.") if r.ispkg]
    return (*own, *sorted(point.value for point in entry_points(group=floor)))
