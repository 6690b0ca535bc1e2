"""The example of times to an event: its data are what the script makes, and its jobs run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import load_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "survival"


def test_the_data_are_made_by_the_script(tmp_path: Path) -> None:
    """Nobody changed them by hand."""
    spec = importlib.util.spec_from_file_location("make_follow_up", EXAMPLE / "make_follow_up.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.write(tmp_path)
    for made in sorted(tmp_path.iterdir()):
        assert made.read_bytes() == (EXAMPLE / "data" / made.name).read_bytes()


@pytest.mark.parametrize("path", sorted(EXAMPLE.glob("*.toml")), ids=lambda path: path.stem)
def test_each_job_finds_what_was_made(tmp_path: Path, path: Path) -> None:
    """On the three hospitals, by their policies' defaults: the arm `new` is the better one."""
    jobs = from_client_files(sorted((EXAMPLE / "clients").glob("*.toml")), tmp_path)
    done = simulate(load_job(path)[0], jobs)
    assert done.error is None, done.error
    told = {e.event.message: e.event.finding for e in done.events if e.event.kind is EventKind.FINDING}
    if (curves := told.get("kaplan_meier")) is not None:
        better = {curve["group"]: curve["restricted_mean"] for curve in curves["curves"]}
        assert better["new"] > better["usual"]
        assert curves["log_rank"]["p_value"] < 0.01
    if (hazards := told.get("cox")) is not None:
        effects = {found["name"]: (found["low"], found["high"]) for found in hazards["coefficients"]}
        assert list(effects) == ["arm=new", "age", "sex", "disease"]
        assert effects["arm=new"][1] < 0.0 < effects["disease"][0]
        assert done.model is not None
        rows = {"arm": ["usual", "new"], "age": [60, 60], "sex": [1, 1], "disease": [1, 1]}
        usual, new = done.model.predict(pd.DataFrame(rows))
        assert np.log(new / usual) == pytest.approx(sum(effects["arm=new"]) / 2.0)
        assert 0.6 < hazards["concordance"] < 0.8
