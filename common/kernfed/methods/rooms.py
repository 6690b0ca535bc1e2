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
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from kernfed.errors import ConfigError


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
            raise ConfigError(
                f"method package {point!r}: {room} is not a package; mend its entry point or uninstall it"
            )
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
            raise ConfigError(f"{module.__name__} has no table {attribute}; see docs/add-a-method.md, or uninstall it")
        if twice := sorted(str(key) for key in part if key in table):
            raise ConfigError(
                f"{module.__name__} brings {twice[0]!r}, which is there already; uninstall one of the two packages"
            )
        table |= part
    return table


@functools.cache
def _rooms(floor: str) -> tuple[tuple[str, str], ...]:
    """Names of the rooms of a floor, each with its entry point; our own have none."""
    own = [r.name for r in pkgutil.iter_modules(importlib.import_module(floor).__path__, f"{floor}.") if r.ispkg]
    outside = sorted((point.value, point.name) for point in entry_points(group=floor))
    return (*((room, "") for room in own), *outside)


def _loaded(name: str, point: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as err:  # whatever a stranger's module does as it is loaded
        if not point:
            raise
        raise ConfigError(
            f"method package {point!r}: {name} cannot be loaded ({type(err).__name__}: {err}); mend or uninstall it"
        ) from err
