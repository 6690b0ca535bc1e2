"""Weights of personal networks chosen by held-out losses of networks, end to end on clients in this process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernfed.errors import WireError
from kernfed.methods.personalise.training_messages import ScoreNetworksRequest, TrainNetworksRequest
from kernfed.models.network_spec import NetworkKind, initial_parameters, make_network_spec
from kernfed_client.methods.personalise.training_steps import score_networks, train_networks
from kernfed_testing.methods.personalise import TRAINERS, clients, concept_rows, finding, notes, personal_job, run

pytestmark = pytest.mark.slow

WIDE = {**TRAINERS["fedavg"], "features": 'kernel = "linear"\n[method.network]\nkind = "mlp"\nwidths = [3]'}


@pytest.mark.parametrize(("rule", "rounds"), [({}, 7), ({"judge": "networks"}, 4)])
def test_the_job_says_who_takes_which_weights(rule: dict[str, str], rounds: int, tmp_path: Path) -> None:
    """The note counts them; a client's file names the teachers that its network had, and the way."""
    rows = concept_rows()
    done = run(personal_job(**rule, **WIDE), clients(rows, tmp_path / "networks"))
    told = finding(done)
    taken = [c for c in told["clients"] if "Q-aggregation" in c["choice"]]
    assert f"networks after {rounds} rounds: {len(taken)} of {len(rows)} clients take" in notes(done)
    for i, client in enumerate(told["clients"]):
        facts = json.loads((tmp_path / "networks" / client["client"] / "model" / "model.json").read_text())["job"]
        assert facts["found_by"] == client["choice"]
        named = {t["client"]: t["weight"] for t in facts["learns_from"]}
        row = dict(zip(sorted(rows), told["matrix"][i], strict=True))
        assert named == pytest.approx({c: w for c, w in row.items() if c in named}, abs=1e-4)
    before = run(personal_job(judge="ridge", **WIDE), clients(rows, tmp_path / "ridge"))
    assert "held-out losses of networks" not in notes(before)
    assert not [c for c in finding(before)["clients"] if "Q-aggregation" in c["choice"]]


def test_held_rows_are_not_seen_and_all_rows_are_scored(tmp_path: Path) -> None:
    """Networks without a fold move the same whatever its targets are; the scores are their losses on it."""
    job = clients(concept_rows(), tmp_path)["ant"]
    jobs = {"ant": job}
    jobs |= {c: j for c, j in clients(concept_rows(), tmp_path / "others").items() if c != "ant"}
    run(personal_job(judge="ridge", **WIDE), jobs)
    spec = make_network_spec(NetworkKind.MLP, job.task, 3, 1, (3,))
    start = np.tile(initial_parameters(spec, 1), (4, 1))
    request = TrainNetworksRequest(
        network=spec,
        networks=start,
        learning_rate=0.1,
        num_steps=3,
        batch_size=0,
        weight_decay=0.0,
        seed=1,
        num_folds=2,
        held=(0, 1, 2, 1),
    )
    moved = train_networks(job, request).networks
    np.testing.assert_array_equal(moved[1], moved[3])
    assert len({row.tobytes() for row in moved[:3]}) == 3
    plain = train_networks(job, replace(request, held=(), num_folds=0)).networks
    np.testing.assert_array_equal(moved[0], plain[0])
    scored = score_networks(job, ScoreNetworksRequest(network=spec, networks=moved, num_folds=2, num_candidates=2))
    assert scored.losses.shape == (2,)
    assert (np.linalg.eigvalsh(scored.covariance) > -1e-12).all()
    assert scored.num_scored == job.num_rows == 14
    job.file = job.file.model_copy(update={"policy": job.file.policy.model_copy(update={"min_rows": 8})})
    few = score_networks(job, ScoreNetworksRequest(network=spec, networks=moved, num_folds=2, num_candidates=2))
    assert few.num_scored == 0
    assert not few.losses.any()
    np.testing.assert_array_equal(train_networks(job, request).networks, np.tile(plain[:1], (4, 1)))
    with pytest.raises(WireError, match="3 networks for 2 candidates"):
        score_networks(job, ScoreNetworksRequest(network=spec, networks=moved[:3], num_folds=2, num_candidates=2))
    with pytest.raises(WireError, match="one too high"):
        train_networks(job, replace(request, held=(0, 1, 2, 3)))
