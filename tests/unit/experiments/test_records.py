"""Records of experiments: what is written is read, and numbers are compared within their errors."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from kernfed_testing.places import EXPERIMENTS

sys.path.insert(0, str(EXPERIMENTS))

import all_tables
import records


def table(measured: float | None, error: float | None = 0.1, setting: str = "s") -> dict[str, Any]:
    """A record of one row."""
    row = {"setting": setting, "method": "m", "measured": measured, "standard_error": error, "draws": 3}
    return {"rows": [row]}


def test_an_entry_has_mean_and_error_of_the_draws_that_could_be_measured() -> None:
    """NaN does not count; one draw has no error, and none no mean."""
    found = records.entry("s", "m", 0.5, [1.0, 2.0, math.nan, 3.0], ridge=1e-3)
    assert found == {
        "setting": "s",
        "method": "m",
        "published": 0.5,
        "measured": 2.0,
        "standard_error": pytest.approx(1 / math.sqrt(3), rel=0.01),
        "draws": 3,
        "ridge": 1e-3,
    }
    assert records.entry("s", "m", None, [7.0])["standard_error"] is None
    assert records.entry("s", "m", None, [math.nan])["measured"] is None


def test_a_record_says_what_it_ran_on(tmp_path: Path) -> None:
    """Size, arguments, versions and processor beside the rows."""
    options = argparse.Namespace(out=tmp_path, quick=True, repetitions=2, mnist=None, set=["dna"])
    records.write([records.entry("s", "m", None, [1.0])], options, "t")
    found = json.loads((tmp_path / "t.json").read_text())
    assert found["reduced"] is True
    assert found["arguments"] == {"repetitions": 2, "set": ["dna"]}
    assert set(found["versions"]) == {"kernfed", "numpy", "scipy", "torch"}
    assert "numpy" in found["platform"]
    assert found["rows"][0]["measured"] == 1.0


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(20.0, "about 20 s"), (600.0, "about 10 min"), (36_000.0, "about 10 h")],
)
def test_an_experiment_says_beforehand_what_it_takes(
    seconds: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows, models and time, in a unit that suits."""
    records.announce(12_000, 60, seconds)
    assert capsys.readouterr().out == f"12,000 rows, 60 models; {told} on one core\n"


def test_numbers_are_compared_within_their_errors() -> None:
    """Three standard errors of both, a tenth where there is one draw, and never seconds."""
    assert records.differences(table(1.0), table(1.4)) == []
    assert [str(d) for d in records.differences(table(1.0), table(1.5))] == ["s, m: 1.0, and 1.5 is recorded"]
    assert records.differences(table(1.0, None), table(1.09)) == []
    assert len(records.differences(table(1.0, None), table(1.2))) == 1
    assert len(records.differences(table(None), table(1.2))) == 1
    assert records.differences(table(1.0, setting="seconds per round"), table(9.0, setting="seconds per round")) == []
    assert records.differences(table(1.0), table(9.0, setting="other")) == []


@pytest.mark.parametrize("path", sorted((EXPERIMENTS / "records").glob("*.json")), ids=lambda path: str(path.stem))
def test_each_record_has_its_script_and_whole_rows(path: Path) -> None:
    """A record names the table of a script, and every row has its columns."""
    found = json.loads(path.read_text())
    assert path.stem.removeprefix("quick-") == found["name"]
    assert path.stem.startswith("quick-") == found["reduced"]
    assert found["rows"]
    for row in found["rows"]:
        assert list(row)[:6] == ["setting", "method", "published", "measured", "standard_error", "draws"]


_RUNNER = """import runpy, sys
from pathlib import Path
runpy.run_path(str(Path(__file__).parent / sys.argv[1] / "script.py"))
"""
_SCRIPT = """import json, sys
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
row = {"setting": "s", "method": "m", "published": None, "measured": 1.0, "standard_error": None, "draws": 1}
(out / "good.json").write_text(json.dumps({"rows": [row]}))
"""


def test_all_tables_go_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is finished is not run again unless it changed, failures name their output, and records are compared."""
    scripts, out, recorded = tmp_path / "scripts", tmp_path / "out", tmp_path / "records"
    good, bad = (scripts / name / "script.py" for name in ("a_good", "b_bad"))
    for folder in (good.parent, bad.parent, recorded):
        folder.mkdir(parents=True)
    (scripts / "__main__.py").write_text(_RUNNER)
    good.write_text(_SCRIPT)
    bad.write_text("raise SystemExit('no images')")
    (recorded / "quick-good.json").write_text(json.dumps(table(2.0, None) | {"name": "good"}))
    monkeypatch.setattr(all_tables, "HERE", scripts)
    monkeypatch.setattr(all_tables, "SCRIPTS", {name: f"{name}.script" for name in ("a_good", "b_bad")})
    monkeypatch.setattr(all_tables, "RECORDS", recorded)
    assert all_tables.main(["--quick", "--out", str(out)]) == 1
    told = capsys.readouterr().out
    assert "[2/2] b_bad: ended with 1 after" in told
    assert "good: s, m: 1.0, and 2.0 is recorded" in told
    assert f"pictures: {out / 'all-quick'}" in told
    assert (out / "all-quick" / "b_bad.log").read_text() == "no images\n"
    bad.write_text("")
    assert all_tables.main(["--quick", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "[1/2] a_good: was finished before" in told
    assert "[2/2] b_bad: 0 s" in told
    good.write_text(_SCRIPT.replace("1.0", "2.0"))
    assert all_tables.main(["--quick", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "[1/2] a_good …" in told
    assert "[2/2] b_bad: was finished before" in told
    assert "all numbers that have a record are within its errors" in told
