"""The model that a client keeps: the distilled one, its own, or a mean of both, by rows kept apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from kernfed.federation.events import EventKind
from kernfed.methods.distill.consensus_file import ARRAYS_FILE, PublicConsensus
from kernfed_client.models.kept_models import find_kept_model, load_kept_model
from kernfed_simulation.federation import JOB_ID, from_rows
from kernfed_simulation.run import simulate
from kernfed_testing.methods.distill import made_job, made_rows, own_models


def test_kept_models_are_found_by_job(tmp_path: Path) -> None:
    """Below a daemon's state folder, by the job's id or a beginning of it; an unknown one is told what there is."""
    from kernfed.errors import UnknownJobError

    job, text, files = made_job(tmp_path, rounds=1)
    jobs = from_rows(made_rows(1), (), tmp_path)
    jobs["site-0"].folder = tmp_path / "state" / "jobs" / "abc"
    assert simulate(job, jobs, text=text, files=files).error is None
    assert find_kept_model(tmp_path / "state", JOB_ID[:4]) == tmp_path / "state" / "jobs" / "abc" / "model"
    with pytest.raises(UnknownJobError, match=JOB_ID):
        find_kept_model(tmp_path / "state", "other")
    with pytest.raises(UnknownJobError, match="none yet"):
        find_kept_model(tmp_path / "empty", "x")


OWN: dict[str, dict[str, Any]] = {
    "laplace": {"kind": "kernel-ridge", "kernel": "laplace"},
    "ridge": {"kind": "kernel-ridge", "ridge": 1e-5},
    "neighbours": {
        "kind": "scikit-learn",
        "class_name": "sklearn.neighbors.KNeighborsRegressor",
        "weights": "ignore",
    },
}
SMOOTH: dict[str, Any] = {"kernel": "gaussian", "lengthscale": 0.5, "ridge": 1e-3, "intercept": True, "rounds": 60}


@pytest.mark.parametrize("own", list(OWN))
def test_clients_with_models_of_their_own_settle(tmp_path: Path, own: str) -> None:
    """The consensus stays where the targets are, and each client's model is at least about as good as its own."""
    job, text, files = made_job(tmp_path, top="evaluate_every = 60", num_points=60, **SMOOTH)
    rows = made_rows(3, 40)
    done = simulate(job, own_models(tmp_path, rows, site_1=OWN[own]), text=text, files=files)
    assert done.error is None
    assert isinstance(done.left, PublicConsensus)
    assert np.abs(done.left.values).max() < 3.0
    assert done.final.pooled["personal"]["mse"] < 1.05 * done.final.pooled["local"]["mse"]


def test_a_client_keeps_the_better_model(tmp_path: Path) -> None:
    """One public point far off teaches nothing good: own models stay, and the job says so and why."""
    rows = made_rows(3, 40)
    points = np.full((1, 3), 9.0)
    job, text, files = made_job(tmp_path, points=points, **{**SMOOTH, "ridge": 1e-2, "rounds": 4}, keep="better")
    done = simulate(job, from_rows(rows, (), tmp_path / "s"), text=text, files=files, out=tmp_path / "out")
    assert done.error is None
    finding = json.loads((tmp_path / "out" / "findings.json").read_text())["distillation"]
    alone = [c["client"] for c in finding["clients"] if c["alone"]]
    notes = [e.event.message for e in done.events if e.event.kind is EventKind.NOTE]
    assert any(note.startswith(f"alone is better for {', '.join(alone)}") for note in notes)
    assert any(note.startswith("few public points: 1,") for note in notes)
    assert any(note.startswith("public points are far") for note in notes)
    for name in alone:
        scores = done.final.clients[name]
        assert scores["personal"]["mse"] == pytest.approx(scores["local"]["mse"], rel=1e-12)
    assert len(alone) >= 2


def test_a_client_keeps_a_mean_of_both_models(tmp_path: Path) -> None:
    """With weights that its rows ask for, which the job says; the measured model is the one that is kept."""
    rows = made_rows(3, 40)
    job, text, files = made_job(tmp_path, num_points=5, **{**SMOOTH, "rounds": 4})
    done = simulate(job, from_rows(rows, (), tmp_path / "s"), text=text, files=files, out=tmp_path / "out")
    assert done.error is None
    finding = json.loads((tmp_path / "out" / "findings.json").read_text())["distillation"]
    shares = {c["client"]: c["share"] for c in finding["clients"]}
    assert any(0.0 < share < 1.0 for share in shares.values())
    notes = [e.event.message for e in done.events if e.event.kind is EventKind.NOTE]
    told = ", ".join(f"{c} ({s:.0%})" for c, s in sorted(shares.items()) if 0.0 < s < 1.0)
    assert any(
        note.startswith(f"shares of the distilled model in what is kept and measured as personal: {told[:12]}")
        for note in notes
    )
    gains = {c["client"]: (c["gain"], c["gain_error"]) for c in finding["clients"]}
    assert all((gain > 0.0) is (error > 0.0) is (shares[c] > 0.0) for c, (gain, error) in gains.items())
    told = ", ".join(f"{c} ({g:.0%} ± {e:.0%})" for c, (g, e) in sorted(gains.items()) if e > 0.0)
    note = next(n for n in notes if n.startswith("on rows kept apart, what is kept has less squared error than own"))
    assert told[:12] in note
    doubtful = [c for c, (g, e) in sorted(gains.items()) if 0.0 < g <= e]
    assert ("may be chance" in note) is bool(doubtful)
    for name, r in rows.items():
        frame = pd.DataFrame(r.x_test, columns=["x0", "x1", "x2"])
        found = load_kept_model(tmp_path / "s" / name / "model").predict_scores(frame)[:, 0]
        mse = float(np.mean((found - r.y_test) ** 2))
        assert mse == pytest.approx(done.final.clients[name]["personal"]["mse"], rel=1e-9)


def test_the_printed_rule_ends_as_diverged(tmp_path: Path) -> None:
    """With the last good consensus, and the models that clients had before, where most clients have another kernel."""
    job, text, files = made_job(tmp_path, top="evaluate_every = 60", num_points=60, **SMOOTH)
    jobs = own_models(tmp_path, made_rows(3, 40), site_1=OWN["laplace"], site_2=OWN["laplace"])
    assert simulate(job, jobs, text=text, files=files).error is None
    kept = [(jobs[name].folder / "model" / "model.json").read_bytes() for name in jobs]
    job, text, files = made_job(tmp_path, num_points=60, **SMOOTH, deregularise="paper")
    done = simulate(job, jobs, text=text, files=files, out=tmp_path / "out")
    assert done.info.error_reason == "DIVERGED"
    assert "method.deregularise = true" in str(done.error)
    values = load_file(tmp_path / "out" / ARRAYS_FILE)["consensus"]
    assert np.abs(values).max() < 3.0
    assert [(jobs[name].folder / "model" / "model.json").read_bytes() for name in jobs] == kept


def test_the_printed_rule_leaves_out_one_client_of_another_kernel(tmp_path: Path) -> None:
    """Its predictions run away, and not those of the others, who go on without it; its own model is kept there."""
    job, text, files = made_job(tmp_path, num_points=60, **SMOOTH, deregularise="paper")
    jobs = own_models(tmp_path, made_rows(3, 40), site_1=OWN["laplace"])
    done = simulate(job, jobs, text=text, files=files)
    assert done.error is None
    (note,) = [e.event.message for e in done.events if e.event.message.startswith("site-1 ")]
    assert "its predictions do not count, and the consensus begins again" in note
    assert isinstance(done.left, PublicConsensus)
    assert np.abs(done.left.values).max() < 2.0
