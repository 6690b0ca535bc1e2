"""Writes `index.py` of each room in `common/kernfed/methods`: what it has, so that a room is loaded when it is needed.

`make docs` and `make proto` run it; with `--check` it only compares.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from kernfed.federation.messages.base import requests_in
from kernfed.federation.messages.later_fields import stated_fields
from kernfed.methods import rooms
from kernfed.methods.rooms import Room

FOLDER = Path(__file__).resolve().parents[1] / "common/kernfed/methods"
HEAD = '''"""Written by `make docs`: what the room has."""

from __future__ import annotations

'''


def text(room: Room) -> str:
    """The index of a room, from its modules."""
    modules = list(room.modules("messages"))
    homes = {request.step: m.__name__.rpartition(".")[2] for m in modules for request in requests_in(m)}
    parts = (
        _names(
            "METHODS", [*room.merged("method", "METHODS")], "Keys of its methods, as `METHODS` of `method` has them."
        ),
        _table("STEPS", homes, "Wire names of its steps, each with the module of its request."),
        _names(
            "FIELDS",
            stated_fields(requests_in(*modules)),
            "Fields of their requests that releases before may not know, as `later_fields` names them.",
        ),
    )
    return HEAD + "\n".join(parts)


def _names(name: str, items: list[str], about: str) -> str:
    listed = "".join(f'    "{item}",\n' for item in items)
    inside = f"(\n{listed})" if len(items) > 1 else "".join(f'("{item}",)' for item in items) or "()"
    return f'{name}: tuple[str, ...] = {inside}\n"""{about}"""\n'


def _table(name: str, items: Mapping[str, str], about: str) -> str:
    listed = "".join(f'    "{key}": "{value}",\n' for key, value in items.items())
    return f'{name}: dict[str, str] = {{{listed and chr(10)}{listed}}}\n"""{about}"""\n'


def main(arguments: list[str]) -> int:
    """Write the indexes, or with `--check` say which are stale; returns the exit code."""
    stale = []
    for room in rooms.rooms(rooms.HOME):
        own = room.name.removeprefix(f"{rooms.HOME}.")
        path = FOLDER / own / "index.py"
        if room.point is None and (fresh := text(room)) != (path.read_text(encoding="utf-8") if path.exists() else ""):
            stale.append(own)
            if "--check" not in arguments:
                path.write_text(fresh, encoding="utf-8")
    if stale:
        print(f"{'stale, run `make docs`' if '--check' in arguments else 'written'}: index of {', '.join(stale)}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
