"""Modules of packages that are edited in place are known by what their installers wrote, and none but these."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernfed import plugins
from kernfed.errors import ConfigError
from kernfed.plugin_files import Files, files_of
from kernfed.plugins import Plugin
from kernfed_testing.machine.installed import on_path, write_package

POINTS = {"kernfed.methods": {"acme": "acme_rooms.shared"}}
MODULES = {"acme_rooms/__init__.py": "", "acme_rooms/shared.py": "", "acme_words/messages.py": "", "notes/conf.py": ""}
ACME = Plugin("acme-edited", "1.0")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder of the path."""
    with on_path(tmp_path / "site"):
        yield tmp_path / "site"


def finder(folder: Path) -> dict[str, str]:
    """What setuptools writes for a package that is edited in place."""
    places = {name: str(folder / name) for name in ("acme_rooms", "acme_words")}
    text = (
        f"from __future__ import annotations\nMAPPING: dict[str, str] = {places!r}\nNAMESPACES = {{}}\nraise OSError\n"
    )
    return {"__editable___acme_1_0_finder.py": text, "__editable__.acme.pth": "import __editable___acme_1_0_finder"}


@pytest.mark.parametrize("way", ["pth", "finder", "neither"])
def test_a_package_edited_in_place_owns_its_folder(tmp_path: Path, site: Path, way: str) -> None:
    """All its top modules are its, those of the same top elsewhere nobody's; a finder is read, and does not run."""
    work = tmp_path / "work"
    listed = {"pth": None, "finder": finder(work), "neither": {"_acme.txt": ""}}[way]
    write_package(site, "acme-edited", POINTS, MODULES, edited=work, listed=listed)
    assert {plugins.owner(name) for name in ("acme_rooms", "acme_rooms.shared", "acme_words.messages")} == {ACME}
    assert all(plugins.is_strange(name) for name in ("acme_rooms.gone", "acme_other", "os"))
    assert plugins.is_strange("notes.conf") == (way == "finder")  # the finder maps packages, not all that lies there


def test_a_module_of_the_same_name_elsewhere_is_not_the_package(tmp_path: Path, site: Path) -> None:
    """What lies ahead of a folder that is edited in place is refused, as it is for one that is installed."""
    write_package(site, "acme-edited", POINTS, MODULES, edited=tmp_path / "work")
    ahead = tmp_path / "ahead"
    (ahead / "acme_rooms").mkdir(parents=True)
    (ahead / "acme_rooms" / "shared.py").touch()
    with on_path(ahead):
        (point,) = plugins.points("kernfed.methods")
        with pytest.raises(ConfigError, match=r"acme-edited 1\.0 .*which is no file of it; move that off"):
            point.imported("acme_rooms.shared")
        assert plugins.is_strange("acme_rooms.shared")


def test_a_module_that_no_installer_wrote_down_is_refused_with_the_remedy(tmp_path: Path, site: Path) -> None:
    """An entry point that names a stranger's module does not make it the package's."""
    write_package(site, "acme-edited", {"kernfed.models": {"x": "acme_lost:X"}})
    (site / "acme_lost.py").write_text("X = 1\n")
    (point,) = plugins.points("kernfed.models")
    with pytest.raises(ConfigError, match=r"acme_lost was loaded from .*; install it again with pip"):
        point.object(int)


def test_an_installer_without_a_list(site: Path) -> None:
    """The package has what lies beside its metadata under the names of its entry points."""
    write_package(site, "acme-edited", POINTS, MODULES)
    next(site.glob("*.dist-info/RECORD")).unlink()
    assert plugins.owner("acme_rooms.shared") == ACME
    assert plugins.is_strange("notes.conf")


@pytest.mark.parametrize(
    "told",
    ["", "[]", '{"url": 3, "dir_info": {"editable": 1}}', '{"url": "https://x/y", "dir_info": {"editable": true}}'],
)
def test_what_installers_do_not_write_counts_as_nothing(site: Path, told: str) -> None:
    """A file of another shape makes nothing edited in place."""
    write_package(site, "acme-edited", POINTS, MODULES)
    next(site.glob("*.dist-info")).joinpath("direct_url.json").write_text(told)
    assert files_of("acme-edited").folders == ()


@pytest.mark.parametrize("text", ["MAPPING = open('x')", "MAPPING = 3", "MAPPING: dict[str, str]", "def (", "\0"])
def test_a_finder_of_another_shape_maps_nothing(tmp_path: Path, site: Path, text: str) -> None:
    """The folder that the package was installed from is what is left."""
    listed = {"__editable___acme_1_0_finder.py": text}
    write_package(site, "acme-edited", POINTS, MODULES, edited=tmp_path / "work", listed=listed)
    assert files_of("acme-edited").mapped == ()
    assert plugins.owner("acme_rooms") == ACME


def test_compiled_modules_and_longer_names(tmp_path: Path) -> None:
    """A module may end in what its platform adds; a package is not one whose name begins alike."""
    (tmp_path / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "fast.txt").touch()
    files = Files(folders=(tmp_path,), mapped=(("acme", tmp_path),))
    assert files.path("fast") == os.fspath(tmp_path / "fast.cpython-311-x86_64-linux-gnu.so")
    assert files.path("acme.fast") == files.path("fast")
    assert files.path("acmes.fast") is None
    assert Files().path("fast") is None
