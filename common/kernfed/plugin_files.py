"""In which files the modules of an installed distribution lie: as its installer wrote them down, or where it is edited.

One that is edited in place (`pip install -e`) has no modules in its installer's list. What it puts on the interpreter's
path stands in files of that list: folders in a `.pth`, or packages with their folders in the finder that setuptools
writes. Where there is neither, as of build systems with finders of their own, it has what lies in the folder that it
was installed from (PEP 610).
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_ENDINGS = (".py", ".so", ".pyd")
_FINDER = "__editable__"
_MAPPINGS = ("MAPPING", "NAMESPACES")


@dataclass(frozen=True, slots=True)
class Files:
    """Those of one distribution."""

    written: Mapping[str, str] = field(default_factory=dict)
    """Modules, each with its file, by the installer's list."""
    folders: tuple[Path, ...] = ()
    """Whatever lies below is the distribution's, as the interpreter's path has it."""
    mapped: tuple[tuple[str, Path], ...] = ()
    """Packages with their folders, and modules with their files, these without an ending."""
    tops: frozenset[str] | None = None
    """In the folders, only what has one of these names is the distribution's; None: all."""

    def path(self, module: str) -> str | None:
        """File of a module; None: it is none of the distribution's, or has no file."""
        if (path := self.written.get(module)) is not None:
            return path
        return next(filter(None, map(_lying, self._places(module))), None)

    def _places(self, module: str) -> Iterator[Path]:
        for name, place in self.mapped:
            if module == name or module.startswith(f"{name}."):
                yield place.joinpath(*module.split(".")[name.count(".") + 1 :])
        parts = module.split(".")
        if self.tops is None or parts[0] in self.tops:
            for folder in self.folders:
                yield folder.joinpath(*parts)


@functools.cache
def files_of(name: str) -> Files:
    """Files of the distribution of a name; none, where it is not installed."""
    try:
        return _files(distribution(name))
    except PackageNotFoundError:
        return Files()


@functools.cache
def everybodys() -> tuple[tuple[Distribution, Files], ...]:
    """Every distribution that is installed here, with its files; the path's first come first."""
    return tuple((dist, _files(dist)) for dist in distributions())


def _files(dist: Distribution) -> Files:
    written = _written(dist)
    if (edited := _edited_at(dist)) is not None:
        folders, mapped = tuple(_pth_folders(dist)), tuple(_finder_places(dist))
        return Files(written, folders or (() if mapped else (edited, edited / "src")), mapped)
    if dist.files is None:  # some installers of systems write no list
        tops = {point.value.partition(":")[0].partition(".")[0].strip() for point in dist.entry_points}
        tops |= set((dist.read_text("top_level.txt") or "").split())
        return Files(folders=(Path(str(dist.locate_file(""))),), tops=frozenset(tops))
    return Files(written)


def _written(dist: Distribution) -> dict[str, str]:
    found = {}
    for path in dist.files or ():
        *folders, file = path.parts
        name = file.partition(".")[0]
        dotted = folders if name == "__init__" else [*folders, name]
        if path.suffix in _ENDINGS and dotted and all(part.isidentifier() for part in dotted):
            found[".".join(dotted)] = str(dist.locate_file(path))
    return found


def _edited_at(dist: Distribution) -> Path | None:
    """The folder in which a distribution is edited in place; None: it is not."""
    try:
        told = json.loads(dist.read_text("direct_url.json") or "{}")
        editable, url = bool(told.get("dir_info", {}).get("editable")), urlsplit(str(told.get("url", "")))
    except (ValueError, AttributeError):  # no JSON, or of another shape
        return None
    return Path(unquote(url.path)) if editable and url.scheme == "file" else None


def _listed(dist: Distribution, ending: str) -> Iterator[tuple[Path, str]]:
    """Text files of the distribution with an ending, beside its metadata."""
    for path in dist.files or ():
        if path.suffix == ending and len(path.parts) == 1:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                place = Path(str(dist.locate_file(path)))
                yield place, place.read_text(encoding="utf-8-sig")


def _pth_folders(dist: Distribution) -> Iterator[Path]:
    for place, text in _listed(dist, ".pth"):
        for line in map(str.strip, text.splitlines()):
            if line and not line.startswith(("#", "import ", "import\t")):
                yield place.parent / line


def _finder_places(dist: Distribution) -> Iterator[tuple[str, Path]]:
    """What the finder of setuptools maps; its text is read, and nothing of it runs."""
    for place, text in _listed(dist, ".py"):
        if place.name.startswith(_FINDER):
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                for node in ast.parse(text).body:
                    yield from _mapped_by(node)


def _mapped_by(node: ast.stmt) -> Iterator[tuple[str, Path]]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    if not any(isinstance(target, ast.Name) and target.id in _MAPPINGS for target in targets):
        return
    value: Any = getattr(node, "value", None)
    told = ast.literal_eval(value) if value is not None else {}
    for name, places in told.items() if isinstance(told, dict) else ():
        for place in [places] if isinstance(places, str) else places:
            yield str(name), Path(str(place))


def _lying(place: Path) -> str | None:
    """The file of a module that lies at a place: of a package, or with an ending."""
    for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if path.is_file():
            return str(path)
    with contextlib.suppress(OSError):
        return next((str(p) for p in sorted(place.parent.glob(f"{place.name}.*")) if p.suffix in _ENDINGS), None)
    return None
