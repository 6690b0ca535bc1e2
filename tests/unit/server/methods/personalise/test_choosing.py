"""Jobs in which only some clients learn, the constants of Q-aggregation, and what a job tells of each client's gain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, QuorumNotMetError
from kernfed.federation.messages.base import Kind
from kernfed_client.models.kept_models import load_kept_model
from kernfed_testing.methods.personalise import (
    TRAINERS,
    clients,
    concept_rows,
    finding,
    notes,
    personal_job,
    run,
    without,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("weights", ["crossfit", "paper"])
def test_only_the_clients_that_are_named_learn(tmp_path: Path, trainer: str, weights: str) -> None:
    """Two of six get the models that they get where all learn; the others have none, and are told of in words."""
    rows, settings = concept_rows(), {**TRAINERS[trainer], "weights": weights}

    some = run(personal_job(targets=["bee", "dog"], **settings), clients(rows, tmp_path / "some"))
    found = {c["client"]: c for c in finding(some)["clients"]}
    assert [name for name, c in found.items() if c["told"]] == ["bee", "dog"]
    assert [name for name, c in found.items() if c["learns"]] == ["bee", "dog"]
    assert found["ant"]["choice"] == "it gets no model: method.targets names others"
    assert "cohort.max_share" not in notes(some), "a key that the method refuses"
    assert [name for name in rows if (tmp_path / "some" / name / "model").exists()] == ["bee", "dog"]
    assert trainer == "fedavg" or "no personal model for ant, cat, eel, fox" in notes(some)
    assert sorted(c for c, m in some.final.clients.items() if "personal" in m) == ["bee", "dog"]
    everyone = run(personal_job(**settings), clients(rows, tmp_path / "all"))
    for name in ("bee", "dog"):
        i = list(rows).index(name)
        assert finding(some)["matrix"][i] == finding(everyone)["matrix"][i]
        if trainer != "fedavg":  # batches of networks are drawn for the models that are trained together
            one: Any = load_kept_model(tmp_path / "some" / name / "model")
            other: Any = load_kept_model(tmp_path / "all" / name / "model")
            np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


def test_a_target_that_is_no_client_is_named(tmp_path: Path) -> None:
    """Before anything leaves a client."""
    with pytest.raises(ConfigError, match=r"method.targets names gnu, and the clients of this job are ant, .*, fox"):
        run(personal_job(targets=["bee", "gnu"]), clients(concept_rows(), tmp_path))


def test_a_target_that_is_left_out_stops_nobody_else(tmp_path: Path) -> None:
    """With preflight "quorum" the other learns; where none is left, the job says so."""
    few: dict[str, Any] = {"bee": {"min_rows": 50}}
    cohort = 'preflight = "quorum"'
    done = run(personal_job(targets=["bee", "dog"], cohort=cohort), clients(concept_rows(), tmp_path / "a", **few))
    assert [c["client"] for c in finding(done)["clients"] if c["told"]] == ["dog"]
    with pytest.raises(QuorumNotMetError, match=r"none of the clients that method.targets names takes part"):
        run(personal_job(targets=["bee"], cohort=cohort), clients(concept_rows(), tmp_path / "b", **few))


def test_clients_that_fall_out_of_training_lower_no_quorum(tmp_path: Path) -> None:
    """Three of six leave at the start, which half of them allows; when another one leaves, the job does not go on."""
    leaving: dict[str, Any] = {name: without(Kind.GRADIENT) for name in ("ant", "bee", "cat")}
    leaving["dog"] = without(Kind.NEWTON_STEP)
    for targets in ([], ["eel", "fox"]):
        with pytest.raises(QuorumNotMetError, match="2 of 3 clients needed by the quorum"):
            run(personal_job(targets=targets, **TRAINERS["newton"]), clients(concept_rows(), tmp_path, **leaving))


def test_constants_of_the_theorem_and_of_the_algorithm(tmp_path: Path) -> None:
    """2 log(B n) of each client's own rows, more steps nearer to the optimum, and a longer step another result."""
    rows = concept_rows()
    told = notes(run(personal_job(weights="paper", c_q="theorem", c_p="theorem"), clients(rows, tmp_path / "a")))
    least, most = 2 * np.log(6 * 14), 2 * np.log(6 * 19)
    assert f"C_Q {least:.4g} to {most:.4g}, C_P {least:.4g} to {most:.4g}" in told

    def gap(**settings: Any) -> float:
        done = run(personal_job(weights="paper", **settings), clients(rows, tmp_path / "b"))
        return float(notes(done).split("every client's objective is within ")[1].split()[0])

    assert gap(steps=5000) < gap() < gap(steps=50)
    assert gap(steps=50, step_factor=1.0) < gap(steps=50)


def test_a_job_tells_what_embeddings_promise(tmp_path: Path) -> None:
    """Each client's expected errors, the clients of the other rule as different, and those of its own rule as alike."""
    rows = concept_rows((60, 62, 64, 66, 68, 70))
    for name in ("bee", "dog", "fox"):
        rows[name] = replace(rows["ant"], y_train=-rows["ant"].y_train, y_test=-rows["ant"].y_test)
    found = finding(run(personal_job(weights="exact", c_q=0.0, c_p=0.0), clients(rows, tmp_path)))
    for client in found["clients"]:
        gain = client["gain"]
        assert gain["mixed"] < gain["alone"]  # what the weights are the optimum of
        assert 1 < gain["effective_dimension"] < 60
        assert gain["bound"] > 0
        assert 1 <= gain["nearest"] <= 6
    alike = found["alike"]
    for i in range(6):
        for k in range(6):
            assert alike[i][k] == alike[k][i]
            assert (alike[i][k] > 0.001) == (i % 2 == k % 2)


def test_noise_hides_how_rows_vary(tmp_path: Path) -> None:
    """Nothing is told that noise does not cover: no effective dimension, no bound, no test of pairs."""
    settings: dict[str, Any] = {"weights": "paper", "trainer": "newton", "scale_columns": False, "rounds": 3}
    features = 'kernel = "linear"\n[method.noise]\nepsilon = 3\ndelta = 1e-5'
    job = personal_job(data="standardise = false", features=features, **settings)
    found = finding(run(job, clients(concept_rows(), tmp_path)))
    assert {c["gain"]["effective_dimension"] for c in found["clients"]} == {0.0}
    assert all(p is None for i, row in enumerate(found["alike"]) for k, p in enumerate(row) if i != k)
