"""Asks pip-audit for known vulnerabilities of pinned packages, and says how many of them it could ask for.

pip-audit takes a package that its service does not know for one without advisories. Behind a mirror without them every
package is such a one, and its silence says nothing: then this ends with 3, with 1 where something was found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def main(python: str, files: list[str]) -> int:
    """Ask for the packages of requirement files, by an interpreter that has pip-audit."""
    pinned = sorted({line for file in files for line in Path(file).read_text().splitlines() if "==" in line})
    together = Path(python).parent.parent / "pinned.txt"
    together.write_text("\n".join(pinned) + "\n")
    command = [python, "-m", "pip_audit", "-r", str(together), "--no-deps", "--disable-pip", "-f", "json"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found = json.loads(asked.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"advisories: nothing was asked; pip-audit says: {asked.stderr.strip()[-300:]}")
        return 3
    known = [package for package in found if "skip_reason" not in package]
    for package in known:
        for one in package["vulns"]:
            print(
                f"{package['name']} {package['version']}: {one['id']}; mended in {one['fix_versions'] or 'no release'}"
            )
    broken = any(package["vulns"] for package in known)
    print(
        f"advisories: asked for {len(known)} of {len(pinned)} packages{'' if broken or not known else ': none known'}"
    )
    if not known:
        print("no service of advisories is reached here: this says nothing; run it where PyPI itself is reached")
    return 1 if broken else 0 if known else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
