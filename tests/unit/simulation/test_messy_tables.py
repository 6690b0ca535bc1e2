"""The page on messy tables: its commands run, and leave what it says; its data are what the script makes."""

from __future__ import annotations

import csv
import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kernfed.cli.main import app as operator
from kernfed.errors import DataError
from kernfed_client.check_data import check_data
from kernfed_client.cli import app as client
from kernfed_simulation.__main__ import app as simulation

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "messy-tables.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for line in re.findall(r"^(kernfed.*)$", PAGE, re.MULTILINE)]


def run(app: typer.Typer, command: list[str]) -> str:
    """What a command of the page prints, all in one line."""
    done = CliRunner().invoke(app, command[1:])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check, train and predict, as a reader would; the agreed levels are those that the page shows."""
    shutil.copytree(ROOT / "examples" / "messy", tmp_path / "examples" / "messy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    job = Path("examples/messy/newton.toml")
    job.write_text("report = false\n" + job.read_text(encoding="utf-8"), encoding="utf-8")
    check, propose, train, predict = COMMANDS
    assert "sex=female" in run(client, check)
    assert '[data.columns] sex = "category"' in run(client, propose)
    shown = re.search(r"^levels that the clients.*$", PAGE, re.MULTILINE)
    assert shown is not None
    trained = run(simulation, train)
    assert shown[0] in trained
    assert re.search(r"chol 6\.\d", trained)
    run(operator, predict)
    with Path("out/predictions.csv").open(newline="") as file:
        scores = [float(row["score"]) for row in csv.DictReader(file)]
    assert len(scores) == 3
    assert scores[0] < 0.3 < 0.7 < scores[1]


def test_a_cell_that_does_not_fit_is_told_as_the_page_shows(tmp_path: Path) -> None:
    """Without the site's words for sex, the check ends with the text of the page."""
    shutil.copytree(ROOT / "examples" / "messy", tmp_path / "messy")
    path = tmp_path / "messy/clients/hungarian.toml"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("sex = { values")), encoding="utf-8")
    shown = re.search(r"^column 'sex'.*?\n.*$", PAGE, re.MULTILINE)
    assert shown is not None
    with pytest.raises(DataError) as caught:
        check_data(tmp_path / "messy/newton.toml", path)
    assert " ".join(shown[0].split()) in str(caught.value)


@pytest.mark.parametrize("hospital", ["cleveland", "hungarian", "va"])
def test_the_exports_are_what_the_script_makes(tmp_path: Path, hospital: str) -> None:
    """Nobody changed them by hand."""
    spec = importlib.util.spec_from_file_location("make_exports", ROOT / "examples/messy/make_exports.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write(tmp_path)
    made = (tmp_path / f"{hospital}.csv").read_bytes()
    assert made == (ROOT / "examples/messy/data" / f"{hospital}.csv").read_bytes()
