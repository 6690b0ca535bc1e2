"""The rules of the house that follow its folders: `make lint` runs it.

A room is a folder in `methods/` of one of the packages. Rooms of one name belong together. No room imports another's,
nobody outside imports a room (tables find them, see `kernfed.methods.rooms`), and no imports go in a circle. Exceptions
stand here, each with its reason.

A file has no more than 400 lines, and a folder no more than 20 files of Python beside its `__init__`; generated code
apart.
"""

from __future__ import annotations

import collections
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

PACKAGES = ("kernfed", "kernfed_server", "kernfed_client", "kernfed_simulation")

BUILD_ON = {
    ("heads", "ridge"): "newton, fedavg and fedprox run on ridge problems where a job names no loss",
    ("personalise", "ridge"): "weighted ridge models are solved by FedNewton's messages",
    ("reweight", "ridge"): "the weighted ridge model is FedNewton's on weighted rows",
}
"""(a room, the room that it builds on) -> why."""

FLOORS = ("common", "server", "client", "simulation", "tests", "experiments", "bench", "tools", "docs", "examples")
"""Folders whose files are counted, from the root of the repository."""

MOST_LINES = 400
MOST_FILES = 20

GENERATED = "common/kernfed/v1"

_ROOM = re.compile(r"kernfed(?:_\w+)?\.methods\.(\w+)\.")


def faults(graph: grimp.ImportGraph) -> Iterator[str]:
    """One line for each import that breaks a rule."""
    rooms = {m.rpartition(".")[0] for m in graph.modules if m.endswith((".method", ".messages", ".workflow", ".steps"))}
    names = {room.rpartition(".")[2] for room in rooms if ".methods." in room}
    imports = {module: sorted(graph.find_modules_directly_imported_by(module)) for module in sorted(graph.modules)}
    for module, found in imports.items():
        for other in found:
            here, there = _room(module, names), _room(other, names)
            if there is None or here == there or (here, there) in BUILD_ON:
                continue
            whose = f"the room of {here}" if here else "a module outside the rooms"
            yield f"{module} imports {other}: {whose} may not know the room of {there}"
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as err:
        yield f"imports in a circle: {' <- '.join(err.args[1])}"


def crowded(root: Path) -> Iterator[str]:
    """One line for each file that is too long, and for each folder with too many files."""
    files = [p.relative_to(root) for floor in FLOORS for p in sorted((root / floor).rglob("*.py"))]
    files = [file for file in files if not file.is_relative_to(GENERATED)]
    for file in files:
        lines = (root / file).read_text(encoding="utf-8").count("\n")
        if lines > MOST_LINES:
            yield f"{file} has {lines} lines, and {MOST_LINES} are the most: look for its second subject"
    folders = collections.Counter(file.parent.as_posix() for file in files if file.name != "__init__.py")
    for folder, count in folders.items():
        if count > MOST_FILES:
            yield f"{folder} has {count} files, and {MOST_FILES} are the most: make rooms"


def _room(module: str, names: set[str]) -> str | None:
    found = _ROOM.match(f"{module}.")
    return found[1] if found and found[1] in names else None


def main() -> int:
    """Print the faults; the exit code says whether there are any."""
    root = Path(__file__).resolve().parents[1]
    found = [*faults(grimp.build_graph(*PACKAGES, cache_dir=None)), *crowded(root)]
    for fault in found:
        print(fault)
    print(f"house: {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
