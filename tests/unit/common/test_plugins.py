"""Packages from outside are found by their entry points, and a fault is told with the distribution that is at fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernfed import plugins
from kernfed.errors import ConfigError, DataError, PluginError
from kernfed.plugins import Plugin
from kernfed_testing.machine.installed import look_again, on_path, write_package

ACME = Plugin("acme-parts", "1.2")


@pytest.fixture(autouse=True)
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder of the path with one sound package."""
    modules = {"acme_parts/__init__.py": "SIX = 6\n", "acme_parts/rooms/__init__.py": ""}
    points = {"kernfed.models": {"acme.tree/1": "acme_parts:SIX"}, "kernfed_client.methods": {"t": "acme_parts.rooms"}}
    write_package(tmp_path, "acme-parts", points, modules, version="1.2")
    with on_path(tmp_path):
        yield tmp_path


def test_what_is_installed_is_told_with_its_release() -> None:
    """Every package has the names that it brings, from all groups."""
    assert plugins.installed() == {ACME: ("acme.tree/1", "t")}
    assert plugins.told().endswith("installed here: acme-parts 1.2 (acme.tree/1, t)")
    point = plugins.find(plugins.MODELS, "acme.tree/1")
    assert point is not None
    assert point.object(int) == 6
    assert plugins.find(plugins.MODELS, "acme.tree/2") is None


def test_a_module_has_an_owner() -> None:
    """Modules of the package's own are its, those of the project and of strangers nobody's."""
    assert plugins.owner("acme_parts.rooms") == ACME
    assert plugins.owner("acme_partsother") is None
    assert plugins.owner("kernfed.methods.ridge.method") is None
    strange = {name: plugins.is_strange(name) for name in ("acme_parts.gone", "acme_parts", "kernfed.plugins", "numpy")}
    assert strange == {"acme_parts.gone": True, "acme_parts": False, "kernfed.plugins": False, "numpy": False}


def test_packages_that_share_a_name_are_told_apart(site: Path) -> None:
    """In one namespace each package owns its files, one that is edited in place those of its folder."""
    more = {"acme_parts/more/rooms/__init__.py": "", "kernfed/methods/more/__init__.py": ""}
    write_package(site, "acme-more", {"kernfed.methods": {"more": "acme_parts.more.rooms"}}, more)
    rooms = {"acme_parts/edited/rooms/__init__.py": "", "acme_parts/edited/rooms/method.py": ""}
    points = {"kernfed.methods": {"edited": "acme_parts.edited.rooms"}}
    write_package(site, "acme-edited", points, rooms, edited=site / "workshop")
    look_again()
    assert plugins.owner("acme_parts.more.rooms") == Plugin("acme-more", "1.0")
    assert plugins.owner("kernfed.methods.more") == Plugin("acme-more", "1.0")
    assert plugins.owner("acme_parts.edited.rooms.method") == Plugin("acme-edited", "1.0")
    assert plugins.owner("acme_parts.rooms") == ACME


def test_a_package_of_two_top_modules_owns_both(site: Path) -> None:
    """What its entry points do not name is its too; of a package without any, its own."""
    modules = {"deal_rooms/__init__.py": "", "deal_words/messages.py": ""}
    write_package(site, "deal", {"kernfed.methods": {"deal": "deal_rooms"}}, modules)
    write_package(site, "lib", {}, {"lib_words.py": ""})
    look_again()
    owners = {plugins.owner(name) for name in ("deal_rooms", "deal_words.messages")}
    assert owners == {Plugin("deal", "1.0")}
    assert plugins.owner("lib_words") == Plugin("lib", "1.0")


def test_a_module_of_the_same_name_elsewhere_is_not_the_package(site: Path, tmp_path_factory: Any) -> None:
    """What lies ahead of it on the path is refused with both places, and owned by nobody."""
    ahead = tmp_path_factory.mktemp("ahead")
    (ahead / "acme_parts").mkdir()
    (ahead / "acme_parts" / "__init__.py").write_text("SIX = 7\n")
    with on_path(ahead):
        point = plugins.find(plugins.MODELS, "acme.tree/1")
        assert point is not None
        with pytest.raises(
            ConfigError, match=r"acme-parts 1\.2 .*acme_parts was loaded from .*, which is no file of it"
        ):
            point.object(int)
        assert plugins.is_strange("acme_parts")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("other_parts.gone:X", r"other_parts\.gone cannot be loaded \(ModuleNotFoundError"),
        ("other_parts.raises:X", r"other_parts\.raises cannot be loaded \(ZeroDivisionError: division by zero\)"),
        ("other_parts:MISSING", r"other_parts:MISSING is no int"),
        ("other_parts", r"other_parts is no int"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_its_distribution(site: Path, value: str, expected: str) -> None:
    """The error is one sentence with the package, its release, and the entry point."""
    modules = {"other_parts/__init__.py": "", "other_parts/raises.py": "1 / 0\n"}
    write_package(site, "other.parts", {"kernfed.tables": {"xyz": value}}, modules, version="0.3")
    look_again()
    point = plugins.find(plugins.TABLES, "xyz")
    assert point is not None
    with pytest.raises(ConfigError, match=rf"^package other\.parts 0\.3 \(entry point 'xyz' of .*\): {expected}"):
        point.object(int)


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ("kernfed", True),
        ("kernfed>=0.0.1", True),
        ("kernfed (>=0.0.1,!=0.0.2)", True),
        ("kernfed[timm]>=900", False),
        ("Kernfed <0.0.1", False),
        ("kernfed==900.*; python_version > '3'", False),
        ("kernfed~=900.1", False),
        ("kernfed-other>=900", True),
        ("kernfed @ file:///somewhere", True),
    ],
)
def test_a_package_for_another_release_is_refused(site: Path, asked: str, fits: bool) -> None:
    """One that says which releases of kernfed it is for is not loaded with others."""
    write_package(
        site, "other-parts", {"kernfed.tables": {"x": "other_parts:X"}}, {"other_parts.py": "X = 1"}, requires=[asked]
    )
    look_again()
    point = plugins.find(plugins.TABLES, "x")
    assert point is not None
    if fits:
        assert point.object(int) == 1
    else:
        with pytest.raises(ConfigError, match=r"it is for kernfed .*, and kernfed \S+ is installed; install a release"):
            point.object(int)


def test_two_that_bring_one_name_are_both_named(site: Path) -> None:
    """Nobody guesses which of two is meant."""
    write_package(site, "other-parts", {"kernfed.models": {"acme.tree/1": "other_parts:X"}})
    look_again()
    with pytest.raises(ConfigError, match=r"packages acme-parts 1\.2, other-parts 1\.0 bring 'acme\.tree/1'"):
        plugins.find(plugins.MODELS, "acme.tree/1")


def test_an_error_of_a_package_is_blamed_on_it() -> None:
    """Its own errors name it, with their words where these may be told; our errors, and errors of ours, pass."""
    silent, told = (
        r"^step x\.y, of package acme-parts 1\.2, raised KeyError; the",
        "raised ValueError: no such thing; the",
    )
    with pytest.raises(PluginError, match=silent), plugins.blamed(ACME, "step x.y", tell=False):
        raise KeyError("a row")
    with pytest.raises(PluginError, match=told), plugins.blamed(ACME, "method m", tell=True):
        raise ValueError("no such thing")
    with pytest.raises(DataError), plugins.blamed(ACME, "method m", tell=True):
        raise DataError("rows")
    with pytest.raises(KeyError), plugins.blamed(None, "method m", tell=True):
        raise KeyError("x")


def test_spellings_of_a_name_are_one() -> None:
    """Case, and what stands between words, make no other distribution."""
    assert plugins.same("Acme_Parts", "acme-parts")
    assert not plugins.same("acme-parts", "acmeparts")
