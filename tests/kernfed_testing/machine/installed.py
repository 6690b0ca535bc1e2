"""Packages from outside as an installation leaves them: modules beside a folder of metadata."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernfed import plugin_files, plugins
from kernfed.methods import rooms


def write_package(
    site: Path,
    name: str,
    points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str] | None = None,
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
    edited: Path | None = None,
    listed: Mapping[str, str] | None = None,
) -> None:
    """Write a package into a folder of the interpreter's path.

    Args:
        site: The folder.
        name: Of the distribution.
        points: Group to name to value, of entry points.
        modules: Path below the folder to text.
        version: Its release.
        requires: What it needs, as `pip` writes it down.
        edited: Folder in which it is edited in place, and where its modules lie then.
        listed: Of one that is edited: what `pip` writes beside the metadata for it, file to text; unset: a `.pth`.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    groups = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in of.items()) for group, of in points.items()]
    (info / "entry_points.txt").write_text("\n".join(groups))
    _write(edited or site, modules or {})
    if edited is not None:
        (info / "direct_url.json").write_text(json.dumps({"url": edited.as_uri(), "dir_info": {"editable": True}}))
        modules = {f"_{info.stem}.pth": f"{edited}\n"} if listed is None else listed
        _write(site, modules)
    names = [f"{info.name}/METADATA", *(modules or ())]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in names))


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def look_again() -> None:
    """What was found on the path before counts no more."""
    importlib.invalidate_caches()
    plugins._all_points.cache_clear()
    plugins.points.cache_clear()
    plugins.owner.cache_clear()
    plugin_files.files_of.cache_clear()
    plugin_files.everybodys.cache_clear()
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
