"""Packages from outside the project: what each brings by its entry points, its release, and what is wrong with one.

A package names what it brings under the groups below. Nothing of it is loaded before it is asked for, but for the rooms
of methods. Whoever meets a fault of a package is told which distribution it is, as its installer knows it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import (
    Distribution,
    EntryPoint,
    EntryPoints,
    PackageNotFoundError,
    entry_points,
    version,
)
from typing import Any, Final, TypeVar

import structlog

from kernfed.errors import ConfigError, KernfedError, PluginError
from kernfed.files import is_full
from kernfed.plugin_files import everybodys, files_of
from kernfed.wording import listed

METHODS: Final = "kernfed.methods"
"""Group of rooms of methods; the other packages have groups of their own, e.g. `kernfed_server.methods`."""
MODELS: Final = "kernfed.models"
"""Group of functions that load a model from its folder, each by the format in the model's facts."""
TABLES: Final = "kernfed.tables"
"""Group of `kernfed.tables.outside.TableFormat`, each by the format's name."""
FEATURES: Final = "kernfed.features"
"""Group of `kernfed.features.outside.Frequencies`, each by the name of the law."""
GROUPS: Final = (METHODS, "kernfed_server.methods", "kernfed_client.methods", "kernfed_simulation.methods")
GROUPS_OF_PARTS: Final = (MODELS, TABLES, FEATURES)
_OURS: Final = ("kernfed", "kernfed_server", "kernfed_client", "kernfed_simulation")

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Plugin:
    """A package that is installed here."""

    name: str
    """Of the distribution, e.g. `kernfed-median`."""
    version: str

    def __str__(self) -> str:
        """As messages name it."""
        return f"{self.name} {self.version}".rstrip()


@dataclass(frozen=True, slots=True)
class Point:
    """An entry point."""

    group: str
    name: str
    value: str
    """What it names: a module, or `module:object`."""
    plugin: Plugin
    faults: str = ""
    """Why nothing of the package can be used with this release, in words; empty: nothing is known against it."""

    @property
    def module(self) -> str:
        """The module that it names."""
        return self.value.partition(":")[0].strip()

    def refuse(self, problem: str, remedy: str) -> ConfigError:
        """The error of a package that is at fault."""
        return ConfigError(f"package {self.plugin} (entry point {self.name!r} of {self.group}): {problem}; {remedy}")

    def imported(self, module: str) -> Any:
        """A module of the package.

        Raises:
            ConfigError: It cannot be loaded, or is for another release of kernfed; names the distribution.
        """
        if self.faults:
            raise self.refuse(self.faults, "install a release of it that fits, or uninstall it")
        try:
            found = importlib.import_module(module)
        except Exception as err:  # whatever a stranger's module does as it is loaded
            problem = f"{module} cannot be loaded ({type(err).__name__}: {err})"
            raise self.refuse(problem, "mend, update or uninstall it") from err
        is_its = files_of(self.plugin.name).path(module) is not None
        if is_strange(module) or (is_its and owner(module) != self.plugin):
            problem = f"{module} was loaded from {getattr(found, '__file__', None)}, which is no file of it"
            remedy = "move that off the interpreter's path, or uninstall one of the two"
            raise self.refuse(problem, remedy if is_its else "install it again with pip, which writes down what is its")
        return found

    def object(self, kind: type[T] | None = None) -> T:
        """What the point names.

        Raises:
            ConfigError: It cannot be loaded, or is not of the kind.
        """
        found = self.imported(self.module)
        for attribute in filter(None, self.value.partition(":")[2].strip().split(".")):
            found = getattr(found, attribute, None)
        if kind is not None and not isinstance(found, kind):
            raise self.refuse(f"{self.value} is no {kind.__name__}", "see docs/add-a-method.md, or uninstall it")
        made: T = found
        return made


@functools.cache
def points(group: str) -> tuple[Point, ...]:
    """The entry points of a group that others than the project name, in a fixed order."""
    found = _all_points().select(group=group)
    return tuple(sorted(map(_point, found), key=lambda p: (p.value, p.name)))


@functools.cache
def _all_points() -> EntryPoints:
    """Of all packages, also those that have none of ours: their files are read once."""
    found: Any = entry_points()  # types before Python 3.12 know another class, which there is no more
    every: EntryPoints = found
    return every


def find(group: str, name: str) -> Point | None:
    """The entry point of a name; None where there is none.

    Raises:
        ConfigError: Two packages bring it.
    """
    known = [point for point in points(group) if point.name == name]
    if len(known) > 1:
        whose = listed([str(point.plugin) for point in known])
        raise ConfigError(f"packages {whose} bring {name!r} of {group}; uninstall all but one")
    return known[0] if known else None


@functools.cache
def owner(module: str) -> Plugin | None:
    """The package from outside that a module belongs to; None: the project's own, or nobody's.

    Whose it is say the files of packages (`kernfed.plugin_files`): first of those that name entry points of ours, then
    of all others. A module that was loaded from elsewhere is nobody's.
    """
    every = [point for group in (*GROUPS, *GROUPS_OF_PARTS) for point in points(group)]
    found = {plugin: path for plugin in {p.plugin for p in every} if (path := files_of(plugin.name).path(module))}
    if not found:
        if module.partition(".")[0] in _OURS:
            return None
        others = ((Plugin(dist.name, dist.version), files.path(module)) for dist, files in everybodys())
        found = dict([(plugin, path) for plugin, path in others if path is not None][:1])

    def nearness(plugin: Plugin) -> tuple[bool, int, Plugin]:
        """Of two that are edited in one folder: whose entry points are nearest."""
        near = max((_shared(p.module, module) for p in every if p.plugin == plugin), default=0)
        return module in files_of(plugin.name).written, near, plugin

    whose = max(found, key=nearness, default=None)
    return whose if whose is not None and _is_from(module, found[whose]) else None


def is_strange(module: str) -> bool:
    """Whether a module is neither the project's own nor of a package that is installed here."""
    return module.partition(".")[0] not in _OURS and owner(module) is None


def _is_from(module: str, path: str) -> bool:
    """Whether a module is not loaded, or from this file."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    return loaded is None or os.path.realpath(loaded) == os.path.realpath(path)


def installed() -> Mapping[Plugin, tuple[str, ...]]:
    """Every package from outside that is installed here, with the names that it brings, sorted."""
    found: dict[Plugin, set[str]] = {}
    for group in (*GROUPS, *GROUPS_OF_PARTS):
        for point in points(group):
            found.setdefault(point.plugin, set()).add(point.name)
    return {plugin: tuple(sorted(found[plugin])) for plugin in sorted(found)}


def told() -> str:
    """What is installed here from outside, in words."""
    words = [f"{plugin} ({listed(names)})" for plugin, names in installed().items()]
    return f"packages from outside that are installed here: {listed(words) if words else 'none'}"


@contextlib.contextmanager
def blamed(plugin: Plugin | None, what: str, *, tell: bool) -> Iterator[None]:
    """While something of a package from outside runs: an error of no sort of ours becomes one that names the package.

    Args:
        plugin: The package; None: it is ours, and its errors pass.
        what: What runs, for the message.
        tell: Whether the message may hold the error's own words, which may tell of rows.

    Raises:
        PluginError: Names the package; the trace is logged.
    """
    try:
        yield
    except (KernfedError, MemoryError):
        raise
    except Exception as err:
        if plugin is None or (isinstance(err, OSError) and is_full(err)):
            raise
        log.exception("a package from outside failed", package=str(plugin), what=what)
        words = f"{type(err).__name__}: {err}" if tell else type(err).__name__
        raise PluginError(
            f"{what}, of package {plugin}, raised {words:.300}; the log has the trace. Update the package, or tell its "
            "maintainers"
        ) from err


def same(one: str, other: str) -> bool:
    """Whether two names are of one distribution: case does not count, nor which of `-`, `_` and `.` stands there."""
    return _normal(one) == _normal(other)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _shared(one: str, other: str) -> int:
    """First parts of two dotted names that are the same."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(one.count("."), other.count(".")) + 1)


def _point(found: EntryPoint) -> Point:
    dist = found.dist
    if dist is None:
        return Point(found.group, found.name, found.value, Plugin(found.value.partition(".")[0], ""))
    return Point(found.group, found.name, found.value, Plugin(dist.name, dist.version), _unfit(dist))


def _unfit(dist: Distribution) -> str:
    """Why a package says that it is not for this release; empty: it does not."""
    try:
        here = version("kernfed")
    except PackageNotFoundError:
        return ""
    for text in dist.requires or ():
        asked = re.match(r"kernfed(?![\w.-])(?:\[[^\]]*\])?[\s(]*([^;)]*)", text, re.IGNORECASE)
        clauses = re.findall(r"([<>]=?|[=!~]=)\s*([\w.*]+)", asked[1]) if asked else []
        if not all(_holds(sign, _release(here), _release(wanted)) for sign, wanted in clauses):
            return f"it is for kernfed {asked[1].strip() if asked else ''}, and kernfed {here} is installed"
    return ""


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version; what comes behind them, as of releases before it, does not count."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _holds(sign: str, here: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a release is one that a clause such as `>=1.2` asks for."""
    width = max(len(here), len(wanted))
    ours, theirs = (numbers + (0,) * (width - len(numbers)) for numbers in (here, wanted))
    if sign == "~=":
        return ours >= theirs and here[: len(wanted) - 1] == wanted[:-1]
    if sign in ("==", "!="):
        return (here[: len(wanted)] == wanted or ours == theirs) == (sign == "==")
    return {">=": ours >= theirs, "<=": ours <= theirs, ">": ours > theirs, "<": ours < theirs}[sign]
