"""The rules of the house hold, and a file that breaks one is found, wherever it lies."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernfed_testing.limits import LIMIT_S
from kernfed_testing.places import ROOT

pytestmark = pytest.mark.slow
"""What `make lint` looks at too, and takes a process that reads the whole house each time."""
FLOORS = ("common/kernfed", "server/kernfed_server", "client/kernfed_client", "simulation/kernfed_simulation")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, and of the settings of the linter, that a test may bend."""
    copy = tmp_path_factory.mktemp("house")
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, copy / floor, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def lint(house: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the copy."""
    path = os.pathsep.join(str(house / floor.partition("/")[0]) for floor in FLOORS)
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=house, env=env, capture_output=True, text=True, timeout=LIMIT_S)


def rules(house: Path) -> str:
    """What the rules say of the copy."""
    return lint(house, sys.executable, str(ROOT / "tools" / "house.py")).stdout


def test_the_house_is_in_order(house: Path) -> None:
    """No room imports another's, nobody outside imports a room, and no imports go in a circle."""
    assert rules(house) == "house: 0 faults\n"


def test_a_room_that_imports_another_is_found(house: Path) -> None:
    """So is a file of no room that imports one, and two files that import each other."""
    here, there = sorted(path.parent.name for path in (house / "client/kernfed_client/methods").glob("*/steps.py"))[:2]
    (house / f"server/kernfed_server/methods/{here}/nosy.py").write_text(f"import kernfed.methods.{there}.method\n")
    (house / "client/kernfed_client/data/nosy.py").write_text(f"import kernfed_client.methods.{there}.steps\n")
    (house / "common/kernfed/maths/one.py").write_text("import kernfed.maths.two\n")
    (house / "common/kernfed/maths/two.py").write_text("import kernfed.maths.one\n")
    found = rules(house)
    assert f"kernfed_server.methods.{here}.nosy imports kernfed.methods.{there}.method" in found
    assert f"kernfed_client.data.nosy imports kernfed_client.methods.{there}.steps" in found
    assert "in a circle" in found
    assert "house: 3 faults" in found
    for path in house.rglob("nosy.py"):
        path.unlink()
    for name in ("one", "two"):
        (house / f"common/kernfed/maths/{name}.py").unlink()


def test_grpc_in_any_file_of_a_room_is_found(house: Path) -> None:
    """`import grpc` at the top of a file of each room, on each floor, fails the linter."""
    rooms = sorted(path for floor in FLOORS[:3] for path in (house / floor / "methods").iterdir() if path.is_dir())
    bent = {path: sorted(p for p in path.glob("*.py") if p.name != "__init__.py")[-1] for path in rooms}
    for file in bent.values():
        file.write_text(f"import grpc\n{file.read_text()}".replace("from __future__ import annotations\n", "", 1))
    done = lint(house, str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
    assert done.returncode == 1
    for file in bent.values():
        module = ".".join(file.relative_to(house).with_suffix("").parts[1:])
        assert f"{module} -> grpc" in done.stdout


def test_long_files_and_crowded_folders_are_found(tmp_path: Path) -> None:
    """A file of 401 lines is a fault and one of 400 is none; so are 21 files in a folder and 20."""
    house = runpy.run_path(str(ROOT / "tools" / "house.py"))
    for folder, files in (("full", 20), ("crowded", 21)):
        (tmp_path / "server" / folder).mkdir(parents=True)
        for name in ["__init__", *(f"file{i}" for i in range(files))]:
            (tmp_path / "server" / folder / f"{name}.py").touch()
    (tmp_path / "server/full/file0.py").write_text("\n" * 400)
    (tmp_path / "server/full/file1.py").write_text("\n" * 401)
    (tmp_path / "common/kernfed/v1").mkdir(parents=True)
    (tmp_path / "common/kernfed/v1/generated.py").write_text("\n" * 500)
    found = sorted(house["crowded"](tmp_path))
    assert [line.partition(",")[0] for line in found] == [
        "server/crowded has 21 files",
        "server/full/file1.py has 401 lines",
    ]
