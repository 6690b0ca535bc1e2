"""Print the bill of materials of the image in which this runs (CycloneDX 1.6, JSON): python3 bill.py IMAGE VERSION.

It lists Python's packages and Debian's, as both write them down where they are installed. Nothing is asked over a
network, and the same image gives the same bytes.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import quote

STATUS = Path("/var/lib/dpkg/status")
"""Where Debian's packages are written down."""


def python_packages() -> list[dict[str, str]]:
    """Python's packages, as components."""
    found = {}
    for package in distributions():
        name, version = package.metadata["Name"].lower().replace("_", "-"), package.version
        found[name] = _component(name, version, f"pkg:pypi/{quote(name)}@{quote(version)}")
    return [found[name] for name in sorted(found)]


def debian_packages(status: str, distribution: str) -> list[dict[str, str]]:
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


def bill(image: str, version: str, components: list[dict[str, str]]) -> dict[str, object]:
    """The whole document."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": image, "version": version}},
        "components": components,
    }


def _component(name: str, version: str, purl: str) -> dict[str, str]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _distribution() -> str:
    release = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    return dict(line.partition("=")[::2] for line in release).get("ID", "debian").strip('"')


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    components = python_packages() + debian_packages(STATUS.read_text(encoding="utf-8"), _distribution())
    print(json.dumps(bill(sys.argv[1], sys.argv[2], components), indent=1))
