"""How a method is found: each room has modules of the same names, and packages from outside are entry points.

A room is a package inside `kernfed.methods`, `kernfed_server.methods`, `kernfed_client.methods` or
`kernfed_simulation.methods`. A table of all methods asks for one attribute of one module of each room, so a new
method adds folders and no line elsewhere, and without its folders the rest still runs. A package outside the project
names a room of its own under an entry point of the group with the same name, e.g. `kernfed_server.methods`.

What a room of ours has, its module `index` says, which `make docs` writes. So a room is loaded when something of it is
asked for. Rooms from outside, and rooms without an index, are loaded at once.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeVar

from kernfed import plugins
from kernfed.errors import ConfigError
from kernfed.plugins import Point

V = TypeVar("V")

HOME: Final = "kernfed.methods"
"""The floor on which each room has its index."""


@dataclass(frozen=True, slots=True)
class Room:
    """A room of a floor."""

    name: str
    """Of its package, e.g. `kernfed.methods.ridge`."""
    point: Point | None
    """Its entry point; None: it is ours."""

    def modules(self, ending: str) -> Iterator[ModuleType]:
        """Import and hand over its modules whose names end in a word; arguments and errors are those of `modules`."""
        inside = getattr(self._loaded(self.name), "__path__", None)
        if inside is None:
            what = f"{self.name} is not a package"
            raise self.point.refuse(what, "mend its entry point or uninstall it") if self.point else ConfigError(what)
        for found in pkgutil.iter_modules(inside, f"{self.name}."):
            name = found.name.rpartition(".")[2]
            if name == ending or name.endswith(f"_{ending}"):
                yield self._loaded(found.name)

    def merged(self, ending: str, attribute: str, there: Container[Any] = ()) -> dict[Any, Any]:
        """Its part of the table that `merged` makes; `there` are keys that other rooms have."""
        table: dict[Any, Any] = {}
        for module in self.modules(ending):
            part = getattr(module, attribute, None)
            if not isinstance(part, dict):
                raise ConfigError(
                    f"{module.__name__}{_whose(module)} has no table {attribute}; see docs/add-a-method.md, or "
                    "uninstall it"
                )
            if twice := sorted(str(key) for key in part if key in table or key in there):
                raise ConfigError(
                    f"{module.__name__}{_whose(module)} brings {twice[0]!r}, which is there already; uninstall one of "
                    "the two packages"
                )
            table |= part
        return table

    @property
    def index(self) -> ModuleType | None:
        """What the room of this name has: `METHODS`, `STEPS` and `FIELDS`; None: nobody wrote it down."""
        if self.point is not None:
            return None
        name = f"{HOME}.{self.name.rpartition('.')[2]}.index"
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as err:
            if err.name is None or not f"{name}.".startswith(f"{err.name}."):
                raise
            return None

    def _loaded(self, module: str) -> ModuleType:
        found: ModuleType = importlib.import_module(module) if self.point is None else self.point.imported(module)
        return found


class ByMethod(Mapping[str, V]):
    """A table with an entry for each method; a room of ours is loaded when one of its methods is asked for.

    Args:
        floor: As for `merged`, and so are the other two.
        ending: The modules.
        attribute: The table in each of them.

    Raises:
        ConfigError: As of `merged`, as far as rooms are loaded.
    """

    def __init__(self, floor: str, ending: str, attribute: str) -> None:
        self._asked = ending, attribute
        self._rooms: dict[str, Room] = {}
        self._loaded: dict[str, V] = {}
        for room in rooms(floor):
            index = room.index
            if index is None:
                part = room.merged(ending, attribute, self._rooms)
                self._loaded |= part
            self._rooms |= dict.fromkeys(part if index is None else index.METHODS, room)

    def __getitem__(self, name: str) -> V:
        if name not in self._loaded:
            room = self._rooms[name]
            part = room.merged(*self._asked)
            if name not in part:
                raise ConfigError(f"{room.name} has no method {name!r}, which its index names; run `make docs`")
            self._loaded = part | self._loaded  # what a thread beside this one put there stays
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rooms)

    def __len__(self) -> int:
        return len(self._rooms)

    def __contains__(self, name: object) -> bool:
        return name in self._rooms


def modules(floor: str, ending: str) -> Iterator[ModuleType]:
    """Import and hand over the modules of every room of a floor whose names end in a word, in a fixed order.

    Args:
        floor: The package that holds the rooms, e.g. `kernfed_client.methods`.
        ending: The module's name, or its last word, e.g. `steps` for `steps` and `training_steps`.

    Raises:
        ConfigError: A room from outside cannot be loaded.
    """
    for room in rooms(floor):
        yield from room.modules(ending)


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
    for room in rooms(floor):
        table |= room.merged(ending, attribute, table)
    return table


@functools.cache
def rooms(floor: str) -> tuple[Room, ...]:
    """The rooms of a floor, ours first."""
    own = [r.name for r in pkgutil.iter_modules(importlib.import_module(floor).__path__, f"{floor}.") if r.ispkg]
    return (*(Room(name, None) for name in own), *(Room(point.module, point) for point in plugins.points(floor)))


def _whose(module: ModuleType) -> str:
    """The package that a module from outside is of, for messages."""
    plugin = plugins.owner(module.__name__)
    return "" if plugin is None else f" of package {plugin}"
