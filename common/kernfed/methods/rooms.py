"""How a method is found: each room has modules of the same names, and packages from outside are entry points.

A room is a package inside `kernfed.methods`, `kernfed_server.methods`, `kernfed_client.methods` or
`kernfed_simulation.methods`. A table of all methods asks for one attribute of one module of each room, so a new
method adds folders and no line elsewhere, and without its folders the rest still runs. A package outside the project
names a room of its own under an entry point of the group with the same name, e.g. `kernfed_server.methods`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from kernfed import plugins
from kernfed.errors import ConfigError
from kernfed.plugins import Point


def modules(floor: str, ending: str) -> Iterator[ModuleType]:
    """Import and hand over the modules of every room of a floor whose names end in a word, in a fixed order.

    Args:
        floor: The package that holds the rooms, e.g. `kernfed_client.methods`.
        ending: The module's name, or its last word, e.g. `steps` for `steps` and `training_steps`.

    Raises:
        ConfigError: A room from outside cannot be loaded.
    """
    for room, point in _rooms(floor):
        inside = getattr(_loaded(room, point), "__path__", None)
        if inside is None:
            what = f"{room} is not a package"
            raise point.refuse(what, "mend its entry point or uninstall it") if point else ConfigError(what)
        for found in pkgutil.iter_modules(inside, f"{room}."):
            name = found.name.rpartition(".")[2]
            if name == ending or name.endswith(f"_{ending}"):
                yield _loaded(found.name, point)


def merged(floor: str, ending: str, attribute: str) -> dict[Any, Any]:
    """One table from the tables that the rooms have under a name.

    Args:
        floor: The package that holds the rooms.
        ending: As for `modules`.
        attribute: A dict in each of these modules.

    Raises:
        ConfigError: A room cannot be loaded, lacks the table, or has a key that another has.
    """
    table: dict[Any, Any] = {}
    for module in modules(floor, ending):
        part = getattr(module, attribute, None)
        if not isinstance(part, dict):
            raise ConfigError(
                f"{module.__name__}{_whose(module)} has no table {attribute}; see docs/add-a-method.md, or uninstall it"
            )
        if twice := sorted(str(key) for key in part if key in table):
            raise ConfigError(
                f"{module.__name__}{_whose(module)} brings {twice[0]!r}, which is there already; uninstall one of the "
                "two packages"
            )
        table |= part
    return table


def _whose(module: ModuleType) -> str:
    """The package that a module from outside is of, for messages."""
    plugin = plugins.owner(module.__name__)
    return "" if plugin is None else f" of package {plugin}"


@functools.cache
def _rooms(floor: str) -> tuple[tuple[str, Point | None], ...]:
    """Names of the rooms of a floor, each with its entry point; our own have none."""
    own = [r.name for r in pkgutil.iter_modules(importlib.import_module(floor).__path__, f"{floor}.") if r.ispkg]
    return (*((room, None) for room in own), *((point.module, point) for point in plugins.points(floor)))


def _loaded(name: str, point: Point | None) -> ModuleType:
    found: ModuleType = importlib.import_module(name) if point is None else point.imported(name)
    return found
