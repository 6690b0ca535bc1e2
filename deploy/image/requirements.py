"""Print what an image installs, from pyproject.toml: python3 requirements.py coordinator|client.

Neither image holds all that the package depends on. The coordinator averages arrays and draws plots; it computes with
numpy and scipy alone, which saves about a gigabyte. A client draws no plots and keeps no database. A test holds both
lists against what the code imports.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

LEFT_OUT = {
    "coordinator": frozenset({"pandas", "pyarrow", "scikit-learn", "torch"}),
    "client": frozenset({"alembic", "jinja2", "matplotlib", "sqlalchemy"}),
}
ADDED = {"coordinator": ("postgres", "web"), "client": ()}
"""Optional groups of pyproject.toml."""


def requirements(image: str, pyproject: Path) -> list[str]:
    """Requirement lines of an image, `coordinator` or `client`."""
    if image not in LEFT_OUT:
        raise SystemExit(f"unknown image {image!r}: {' or '.join(LEFT_OUT)}")
    project = tomllib.loads(pyproject.read_text())["project"]
    lines: list[str] = [line for line in project["dependencies"] if name_of(line) not in LEFT_OUT[image]]
    for group in ADDED[image]:
        lines += project["optional-dependencies"][group]
    return lines


def name_of(requirement: str) -> str:
    """The package that a requirement line is about."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(*requirements(sys.argv[1], Path("pyproject.toml")), sep="\n")
