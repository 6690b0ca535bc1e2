"""Rooms from outside that are broken are told by name, in every command, without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    if content is not None:
        room = tmp_path / "stranger_room"
        room.mkdir()
        (room / "__init__.py").touch()
        (room / "method.py").write_text(content)
    write_package(tmp_path, "strange-one", {"kernfed.methods": {"stranger": "stranger_room"}})
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
