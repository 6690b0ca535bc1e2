"""Personal networks end to end on clients in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernfed_client.models.kept_models import load_kept_model
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import bench
from kernfed_testing.methods.personalise import ALIKE, NAMES, UNJUDGED, clients, concept_rows, personal_job, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scale", ["all", "mixture"])
def test_kept_networks_predict_as_they_were_measured(tmp_path: Path, scale: str) -> None:
    """Each client's network, loaded from its folder, has the error that the job reports, whatever its scale was."""
    rows = concept_rows()
    done = run(personal_job(network_scale=scale, **UNJUDGED), clients(rows, tmp_path))
    for name, r in rows.items():
        kept = load_kept_model(tmp_path / name / "model")
        scores = kept.predict_scores(pd.DataFrame(r.x_test, columns=["x0", "x1", "x2"]))[:, 0]
        assert done.final.clients[name]["personal"]["mse"] == pytest.approx(float(np.square(scores - r.y_test).mean()))
    facts = json.loads((tmp_path / "ant" / "model" / "model.json").read_text())
    assert facts["kind"] == "personal-network"


def test_a_run_that_began_in_the_scale_of_all_rows_goes_on_in_it(tmp_path: Path) -> None:
    """A checkpoint of before has no scales of mixtures; it ends as one of that rule."""
    rows = concept_rows()
    alike, now = personal_job(**ALIKE["alike"]), personal_job(**UNJUDGED)
    whole = bench(rows, tmp_path).run(alike)
    first = bench(rows, tmp_path).run(alike, stop_before=4)
    resumed = bench(rows, tmp_path).run(now, resumed=first.journal.last)
    assert resumed.metrics[-1] == whole.metrics[-1]
    assert resumed.metrics[-1] != bench(rows, tmp_path).run(now).metrics[-1]


def test_networks_are_measured_though_a_client_is_gone_after_a_restart(tmp_path: Path) -> None:
    """The scale of each client alone, which is measured at the end, is of the clients that are left."""
    rows = concept_rows()
    job = personal_job(cohort='preflight = "quorum"', **UNJUDGED)
    first = bench(rows, tmp_path).run(job, stop_before=4)
    left = {name: rows[name] for name in list(rows)[:-1]}
    done = bench(left, tmp_path).run(job, resumed=first.journal.last)
    last = done.metrics[-1].clients
    assert sorted(last) == sorted(left)
    assert all("local" in scores and "personal" in scores for scores in last.values())


def test_networks_of_clients_in_other_places_gain_by_their_mixtures_scale(tmp_path: Path) -> None:
    """Two groups far apart: in the scale of its own group a network gets nearer in as many rounds."""
    random = np.random.default_rng(5)
    rows = {}
    for i, name in enumerate(NAMES):
        x = 0.2 * random.normal(size=(90, 3)) + (3.0 if i % 2 else -3.0)
        y = np.sin(8 * x[:, 0]) + 0.05 * random.normal(size=90)
        rows[name] = Rows(x[:50], y[:50], x[50:], y[50:])
    common: dict[str, Any] = {"trainer": "fedavg", "rounds": 50, "weights": "paper", "num_frequencies": 30, "view": "x"}
    found = {}
    for scale in ("all", "mixture"):
        job = personal_job(network_scale=scale, top="evaluate_every = 1000", **common)
        found[scale] = run(job, clients(rows, tmp_path / scale)).final.pooled
    assert found["mixture"]["personal"]["mse"] < 0.8 * found["all"]["personal"]["mse"]
    assert found["mixture"]["global"] == found["all"]["global"]
