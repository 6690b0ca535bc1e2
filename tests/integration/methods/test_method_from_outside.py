"""A method of a package outside the project, as docs/add-a-method.md shows it: known by entry points alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kernfed.federation.events import JobState
from kernfed_testing.federation import Federation
from kernfed_testing.limits import LIMIT_S
from kernfed_testing.nodes import Node, Process
from kernfed_testing.places import HEART, ROOT

MEDIAN = ROOT / "examples" / "median"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path that an interpreter finds the package on, with what an installation writes beside it."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((MEDIAN / "pyproject.toml").read_text())["project"]
    info = site / "kernfed_median-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    return os.pathsep.join([str(site), str(MEDIAN), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_it_runs_in_a_simulation(installed: str) -> None:
    """`kernfed-simulate` knows the method's key, and refuses it where the package is not installed."""
    command = [sys.executable, "-m", "kernfed_simulation", str(MEDIAN / "heart.toml"), "--json"]
    command += ["--data", str(HEART / "data" / "cleveland.csv"), "--partition", "iid", "--clients", "4"]
    env = {**os.environ, "PYTHONPATH": installed}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert '"state": "succeeded"' in done.stdout.lower(), done.stderr
    alone = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert alone.returncode == 3
    assert "median" in alone.stderr


class WithMedian(Federation):
    """A federation whose coordinator alone has the package."""

    path: str

    def _make_coordinator(self) -> Node:
        return Process("kernfed_server", "run", cwd=self.root, env={"PYTHONPATH": self.path})


async def test_hospitals_install_nothing(tmp_path: Path, installed: str) -> None:
    """Over the network the clients run steps that they have, and only the coordinator knows the method."""
    WithMedian.path = installed
    async with WithMedian(tmp_path, ["a", "b", "c"], processes=True) as fed:
        ended = await fed.run(fed.job("median", rounds=4))
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        assert ended.info.num_rounds == 4
        assert ended.info.round_num == 4
