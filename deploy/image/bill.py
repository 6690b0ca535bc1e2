"""Print a bill of materials (CycloneDX 1.6, JSON): python3 bill.py NAME VERSION [FOLDER CONSTRAINTS...].

Of the image in which this runs it lists Python's packages and Debian's, as both write them down where they are
installed; of a folder its wheels, with their digests, or where it has none the versions that the constraints pin.
Nothing is asked over a network, and the same image or folder gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

STATUS = Path("/var/lib/dpkg/status")
"""Where Debian's packages are written down."""


Component = dict[str, Any]


def python_packages() -> list[Component]:
    """Python's packages, as components."""
    found = {}
    for package in distributions():
        component = _python_package(package.metadata["Name"], package.version)
        found[component["name"]] = component
    return [found[name] for name in sorted(found)]


def wheels(folder: Path) -> list[Component]:
    """The wheels of a folder, as components with their digests."""
    found = []
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        digest = {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
        found.append({**_python_package(name, version), "hashes": [digest]})
    return found


def pinned(*constraints: Path) -> list[Component]:
    """The packages that files of constraints pin, as components."""
    lines = {
        pin for file in constraints for pin in re.findall(r"^([a-z].*)==(\S+)", file.read_text("utf-8"), re.MULTILINE)
    }
    return [_python_package(name, version) for name, version in sorted(lines)]


def debian_packages(status: str, distribution: str) -> list[Component]:
    """Debian's packages, as components.

    Args:
        status: Text of dpkg's file of packages.
        distribution: E.g. `debian`.
    """
    found = []
    for paragraph in status.split("\n\n"):
        pairs = (line.partition(": ") for line in paragraph.splitlines() if line[:1].strip())
        facts = {key: value.strip() for key, _, value in pairs}
        if facts.get("Status", "").endswith(" installed"):
            name, version = facts["Package"], facts["Version"]
            where = f"pkg:deb/{distribution}/{quote(name)}@{quote(version)}?arch={facts['Architecture']}"
            found.append(_component(name, version, where))
    return sorted(found, key=lambda component: component["purl"])


def bill(kind: str, name: str, version: str, components: list[Component]) -> Component:
    """The whole document, of an `application` or a `container`."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": kind, "name": name, "version": version}},
        "components": components,
    }


def _python_package(named: str, version: str) -> Component:
    name = named.lower().replace("_", "-")
    return _component(name, version, f"pkg:pypi/{quote(name)}@{quote(version)}")


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _distribution() -> str:
    release = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return dict(line.partition("=")[::2] for line in release).get("ID", "debian").strip('"')


if __name__ == "__main__":
    match sys.argv[1:]:
        case [name, version]:
            listed = python_packages() + debian_packages(STATUS.read_text(encoding="utf-8"), _distribution())
            made = bill("container", name, version, listed)
        case [name, version, folder, *constraints]:
            made = bill("application", name, version, wheels(Path(folder)) or pinned(*map(Path, constraints)))
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(made, indent=1))
