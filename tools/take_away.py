"""Takes a room of methods away from this copy of the repository: `python tools/take_away.py reweight`.

Folders and files of the room's name go, on every floor, below the tests, and among experiments and measurements; so do
example jobs of its methods, and what the pages say of it: its own pages, the keys and rows of its methods, its steps,
and the links that led to these. Its messages in proto/ and the generated code stay: the wire only grows. Sentences
about it stay as well; the lines that name its methods are printed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kernfed.methods.registry import METHODS
from kernfed_client.steps.registry import STEPS

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("common", "server", "client", "simulation", "tests", "experiments", "bench")


def main(room: str) -> int:
    """Take it away; the exit code."""
    methods = {name for name, method in METHODS.items() if _is_of(room, method.settings)}
    if not methods:
        print(f"{room!r} is no room with methods of its own", file=sys.stderr)
        return 2
    steps = {request.step for request in STEPS if _is_of(room, request)}
    for path in belongings(ROOT, room, methods):
        print(f"takes away {path.relative_to(ROOT)}")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    for page in sorted(pages):
        text = page.read_text(encoding="utf-8")
        if (left := without(text, room, methods, steps)) != text:
            page.write_text(left, encoding="utf-8")
    for tool in (ROOT / "docs" / "reference.py", ROOT / "tools" / "write_stub.py"):
        subprocess.run([sys.executable, str(tool)], check=True)
    named = re.compile("|".join(rf"`{re.escape(name)}`" for name in sorted(methods)))
    for page in sorted({*pages} - {ROOT / "CHANGELOG.md"}):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if named.search(line):
                print(f"{page.relative_to(ROOT)}:{number} still names it: {line.strip()[:100]}")
    return 0


def belongings(root: Path, room: str, methods: set[str]) -> Iterator[Path]:
    """Folders and files of a room's name, none inside another; and the example job files of its methods."""
    for floor in FLOORS:
        for folder in (root / floor, *(p for p in (root / floor).rglob("*") if p.is_dir())):
            if folder.name in ("methods", "experiments", "bench"):
                yield from sorted(p for p in folder.iterdir() if re.fullmatch(rf"{room}(_\w+)?(\.py)?", p.name))
    yield from (page for folder in ("methods", "results") if (page := root / "docs" / folder / f"{room}.md").exists())
    for job in sorted((root / "examples").rglob("*.toml")):
        if set(re.findall(r'^\[method\]\nname = "([\w-]+)"', job.read_text(encoding="utf-8"), re.MULTILINE)) & methods:
            yield job


def without(text: str, room: str, methods: set[str], steps: set[str]) -> str:
    """A page without the keys of methods, without rows of steps, and without links to what is gone."""
    names = "|".join(map(re.escape, sorted(methods)))
    text = re.sub(rf"^### (?:{names})\n(?:(?!#{{1,3}} ).*\n)*", "", text, flags=re.MULTILINE)
    text = re.sub(rf"^\|.*\]\({room}\.md\) \|\n", "", text, flags=re.MULTILINE)
    gone = rf"(?:[^()\s]*/)?{room}\.md(?:#[^()\s]*)?|(?:[^()\s]*jobs\.md)?#(?:{names})"
    text = re.sub(rf"\[([^\[\]]+)\]\((?:{gone})\)", r"\1", text)
    return "".join(_row_without(line, steps) for line in text.splitlines(keepends=True))


def _row_without(line: str, steps: set[str]) -> str:
    """A row whose first cell lists steps, without some of these; empty where none is left."""
    listed = re.match(r"\| (`\w+\.\w+`(?:, `\w+\.\w+`)*) \|", line)
    if listed is None:
        return line
    left = ", ".join(name for name in listed[1].split(", ") if name.strip("`") not in steps)
    return f"| {left} |{line[listed.end() :]}" if left else ""


def _is_of(room: str, declared: type) -> bool:
    return declared.__module__.startswith(f"kernfed.methods.{room}.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else "usage: python tools/take_away.py ROOM")
