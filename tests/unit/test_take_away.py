"""A room of methods can be taken away, and what the pages say of it goes too."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest

from kernfed.methods.registry import METHODS
from kernfed_client.steps.registry import STEPS
from kernfed_testing.places import ROOT

FLOORS = {"common": "kernfed", "server": "kernfed_server", "client": "kernfed_client"}
ROOMS = sorted({method.settings.__module__.split(".")[2] for method in METHODS.values()})
PAGES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools" / "take_away.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_no_page_leads_to_what_is_gone(tool: dict[str, Any], room: str) -> None:
    """Neither a link, nor a heading with keys, nor a row of steps is left; the rest of the pages stays."""
    methods = {name for name, method in METHODS.items() if f".{room}." in method.settings.__module__}
    steps = {request.step for request in STEPS if f".{room}." in request.__module__}
    for page, text in PAGES.items():
        if page.stem == room:
            continue
        left = tool["without"](text, room, methods, steps)
        assert f"{room}.md" not in left, page
        assert not [name for name in methods if f"](#{name})" in left or f"jobs.md#{name})" in left], page
        headings = [set(re.findall(r"^### ([\w-]+)$", one, re.MULTILINE)) for one in (text, left)]
        assert headings[1] == headings[0] - methods, page
        rows = [" ".join(re.findall(r"^\| (`\w+\.\w+`[^|]*)\|", one, re.MULTILINE)) for one in (text, left)]
        named = [set(re.findall(r"[\w.]+", row)) for row in rows]
        assert named[1] == named[0] - steps, page


def test_what_belongs_to_a_room_has_its_name(tool: dict[str, Any]) -> None:
    """Every floor of a room, its tests, its tables and its pages are found; nothing of another room is."""
    for room in ROOMS:
        found = {path.relative_to(ROOT).as_posix() for path in tool["belongings"](ROOT, room, set())}
        assert {f"{side}/{package}/methods/{room}" for side, package in FLOORS.items()} <= found
        assert f"docs/methods/{room}.md" in found
        assert not [path for path in found for other in ROOMS if other != room and f"/{other}" in path]
