"""Packages from outside as an installation leaves them: modules beside a folder of metadata."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernfed import plugins
from kernfed.methods import rooms


def write_package(
    site: Path,
    name: str,
    points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str] | None = None,
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
) -> None:
    """Write a package into a folder of the interpreter's path.

    Args:
        site: The folder.
        name: Of the distribution.
        points: Group to name to value, of entry points.
        modules: Path below the folder to text.
        version: Its release.
        requires: What it needs, as `pip` writes it down.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    groups = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in of.items()) for group, of in points.items()]
    (info / "entry_points.txt").write_text("\n".join(groups))
    for path, text in (modules or {}).items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    listed = [f"{info.name}/METADATA", *(modules or ())]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in listed))


def look_again() -> None:
    """What was found on the path before counts no more."""
    importlib.invalidate_caches()
    plugins._all_points.cache_clear()
    plugins.points.cache_clear()
    plugins.owner.cache_clear()
    plugins._written.cache_clear()
    plugins._everywhere.cache_clear()
    rooms.rooms.cache_clear()


@contextlib.contextmanager
def on_path(site: Path) -> Iterator[None]:
    """Let this process find the packages of a folder, and forget them afterwards."""
    sys.path.insert(0, str(site))
    look_again()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(site)):
                del sys.modules[name]
        look_again()
