"""Rooms from outside that are broken are told by name, in every command, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernfed.errors import ConfigError
from kernfed.methods import rooms
from kernfed.methods.registry import METHODS
from kernfed_testing.forked import run_module
from kernfed_testing.machine.installed import write_package
from kernfed_testing.places import HEART

GOOD = "from kernfed.methods.probe.method import METHODS\n"
"""A room that brings a name which is there already."""

FAULTS = {
    "missing": (None, "cannot be loaded (ModuleNotFoundError"),
    "syntax": ("def", "cannot be loaded (SyntaxError"),
    "raises": ("1 / 0\n", "cannot be loaded (ZeroDivisionError"),
    "no table": ("SOMETHING = {}\n", "has no table METHODS"),
    "twice": (GOOD, "brings 'probe', which is there already"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_package_is_named(tmp_path: Path, fault: str) -> None:
    """The error is one line that names the package, for the simulation as for a client's check."""
    content, expected = FAULTS[fault]
    modules = {} if content is None else {"stranger_room/__init__.py": "", "stranger_room/method.py": content}
    write_package(tmp_path, "strange-one", {"kernfed.methods": {"stranger": "stranger_room"}}, modules)
    job = str(HEART / "newton.toml")
    for command in (
        [
            "kernfed_simulation",
            job,
            "--data",
            str(HEART / "data/cleveland.csv"),
            "--partition",
            "iid",
            "--clients",
            "2",
        ],
        ["kernfed_client", "check-data", job, "--config", str(HEART / "clients/va.toml")],
    ):
        done = run_module(*command, beside=tmp_path)
        told = " ".join(done.stderr.split())
        assert done.returncode == 3, told
        assert expected in told
        assert "package strange-one 1.0" in told
        assert "Traceback" not in told


def test_every_method_has_its_own_name() -> None:
    """The key of the registry is the name that the settings are chosen by."""
    assert all(method.name == name for name, method in METHODS.items())


@pytest.fixture
def floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Rooms of a floor: `told` has an index, `stale` one that names too much, and `bare` none."""
    files = {
        "told/index.py": 'METHODS = ("one", "two")\n',
        "told/method.py": 'METHODS = {"one": 1, "two": 2}\n',
        "stale/index.py": 'METHODS = ("gone",)\n',
        "stale/method.py": 'METHODS = {"here": 4}\n',
        "bare/method.py": 'METHODS = {"three": 3}\n',
    }
    for name, text in files.items():
        path = tmp_path / "some_floor" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    (tmp_path / "some_floor/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(rooms, "HOME", "some_floor")
    yield "some_floor"
    rooms.rooms.cache_clear()
    for name in [m for m in sys.modules if m.startswith("some_floor")]:
        del sys.modules[name]


def test_a_room_is_loaded_when_a_method_of_it_is_asked_for(floor: str) -> None:
    """Names are known before; a room that has no index is loaded at once."""
    table: rooms.ByMethod[int] = rooms.ByMethod(floor, "method", "METHODS")
    assert sorted(table) == ["gone", "one", "three", "two"]
    assert "two" in table
    assert len(table) == 4
    assert table.get("four") is None
    assert f"{floor}.bare.method" in sys.modules
    assert f"{floor}.told.method" not in sys.modules
    assert (table["two"], table["one"], table["three"]) == (2, 1, 3)


def test_an_index_that_names_too_much_is_told(floor: str) -> None:
    """The error names the room, the method and the remedy."""
    with pytest.raises(ConfigError, match=r"stale has no method 'gone', which its index names; run `make docs`"):
        rooms.ByMethod(floor, "method", "METHODS")["gone"]
